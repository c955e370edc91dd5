# Python runs this file at its start where this directory is on PYTHONPATH: `telem run --dragon` puts it first. It has
# imports of dragon.telemetry answered by telem.dragon, and costs nothing to a program that imports no dragon. Nothing
# that fails here reaches the program; with TELEM_LOG set it is said in one line.
import sys


class _Finder:
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
    import os

    if os.environ.get("TELEM_LOG"):
        try:
            print(f"telem: dragon.telemetry is not put in place: {type(error).__name__}: {error}", file=sys.stderr)
        except Exception:
            pass


def _install():
    import os

    if os.environ.get("TELEM_DRAGON", "1").lower() in ("0", "false", "no", "off"):
        return
    if not any(getattr(finder, "NAMES", None) == _Finder.NAMES for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)
    # Last: an installed telem comes first.
    root = os.path.dirname(os.path.dirname(os.path.dirname(_here())))
    if root not in sys.path:
        sys.path.append(root)


def _here():
    import os

    return os.path.dirname(os.path.abspath(__file__))


def _next():
    """The site's own sitecustomize, which this one hides."""
    import os
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.realpath(_here())
    others = [path for path in sys.path if isinstance(path, str) and os.path.realpath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None or os.path.realpath(spec.origin or "") == os.path.realpath(__file__):
        return None
    return spec, module_from_spec(spec)


try:
    _install()
    _found = _next()
except Exception as _error:
    _found = None
    _tell(_error)
if _found is not None:
    # What it raises is its own, and Python tells of it as it would without us.
    sys.modules["sitecustomize"] = _found[1]
    _found[0].loader.exec_module(_found[1])
