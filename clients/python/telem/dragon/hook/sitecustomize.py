# Python runs this file at its start where this directory is on PYTHONPATH: `telem run --dragon` puts it first. It has
# imports of dragon.telemetry answered by telem.dragon, and costs nothing to a program that imports no dragon. Nothing
# that fails here reaches the program; with TELEM_LOG set it is said in one line. Every Python reads it, 2.7 too: those
# before 3.9 only go on to the sitecustomize that this one hides.
import os
import sys


class _Finder(object):
    NAMES = frozenset(
        ["dragon", "dragon.telemetry", "dragon.utils"]
        + ["dragon.telemetry." + part for part in ("analysis", "offline_telemetry", "telemetry", "widget")]
    )

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.NAMES:
            return None
        try:
            from telem.dragon import _place

            return _place.spec_of(name, path, target, cls)
        except Exception as error:  # as if nothing were in place
            _tell(error)
            return None


def _tell(error):
    if os.environ.get("TELEM_LOG"):
        try:
            why = "%s: %s" % (type(error).__name__, error)
            sys.stderr.write("telem: dragon.telemetry is not put in place: %s\n" % why)
        except Exception:
            pass


def _install(here):
    if sys.version_info < (3, 9) or os.environ.get("TELEM_DRAGON", "1").lower() in ("0", "false", "no", "off"):
        return
    if not any(getattr(finder, "NAMES", None) == _Finder.NAMES for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)
    # Last: an installed telem comes first.
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if root not in sys.path:
        sys.path.append(root)


def _next(here):
    """What runs the site's own sitecustomize, which this one hides; None where there is none."""
    others = [path for path in sys.path if path != here]
    if sys.version_info < (3, 5):
        import imp

        try:
            found = imp.find_module("sitecustomize", others)
        except ImportError:
            return None
        return lambda: imp.load_module("sitecustomize", *found)
    # Of the interpreter itself: nothing is imported for it.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", others)
    # This file under another name would go on to itself for ever.
    while spec is not None and _is_this(spec.origin):
        others = [path for path in others if os.path.join(path, "sitecustomize.py") != spec.origin]
        spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return None
    sys.modules["sitecustomize"] = module_from_spec(spec)
    return lambda: spec.loader.exec_module(sys.modules["sitecustomize"])


def _is_this(path):
    return bool(path) and os.path.exists(path) and os.path.samefile(path, __file__)


_here = os.path.dirname(os.path.abspath(__file__))
_run = None
try:
    _install(_here)
    _run = _next(_here)
except Exception as _error:
    _tell(_error)
if _run is not None:
    # What it raises is its own: Python tells of it as it would without this file.
    _run()
