"""Where the other databases come from: built from their Go modules at the releases named here where `go` is there,
Debian's packages otherwise, or a binary that is told. QuestDB is a jar that `mvn` fetches, and runs on the Java that is
there or on Debian's. All of it lies in the cache and is started from there; nothing is installed.

Modules are fetched as this machine's `go` is set up (GOPROXY, GOFLAGS, GOTOOLCHAIN), and are built in the module's own
directory: by its own go.mod and go.sum, so that what is built is what its makers released.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess

from .machine import say
from .server import Failed

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "telem"
FETCH_S = 300
BUILD_S = 3_600


@dataclasses.dataclass(frozen=True)
class Module:
    """A database as a Go module: what is built, and of which release."""

    path: str
    version: str
    package: str
    #: That version as people know it: Prometheus 3.16.0 is v0.316.0 of its module.
    release: str
    #: Tags of the build.
    tags: str = ""

    def said(self, version):
        return self.release if version == self.version else version


#: The releases that are built. Another one: `--version NAME=VERSION`.
MODULES = {
    "victoria-metrics": Module(
        "github.com/VictoriaMetrics/VictoriaMetrics", "v1.122.0", "./app/victoria-metrics", "v1.122.0 of July 2025"
    ),
    # Without the clouds in which it finds what to scrape: nothing is scraped, and their modules take most of the build.
    "prometheus": Module(
        "github.com/prometheus/prometheus",
        "v0.316.0",
        "./cmd/prometheus",
        "3.16.0 of November 2026",
        "remove_all_sd",
    ),
}
@dataclasses.dataclass(frozen=True)
class Jar:
    """A database as an artifact of Maven."""

    artifact: str
    version: str
    #: That version with its month.
    release: str


JARS = {"questdb": Jar("org.questdb:questdb", "9.3.4", "9.3.4 of March 2026")}
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
#: What runs them.
JAVA_MIN = 17
JAVA_PACKAGE = f"openjdk-{JAVA_MIN}-jre-headless"

#: Debian's packages, and the file of each that is started.
PACKAGES = {
    "victoria-metrics": "usr/bin/victoria-metrics",
    "prometheus": "usr/bin/prometheus",
    "influxdb": "usr/bin/influxd",
}


class Binaries:
    """The binaries of a run by the names of their databases; `versions` says what each is."""

    def __init__(self, source=None, releases=None, paths=None):
        self.cache = CACHE / "peers"
        self.versions = {}
        self.source = source or ("go" if shutil.which("go") else "debian")
        self.releases = releases or {}
        self.paths = paths or {}
        for name in self.releases:
            if name not in MODULES | JARS:
                raise Failed(f"--version {name}: there are {', '.join(MODULES | JARS)}")
        for name in self.paths:
            if name not in PACKAGES | JARS:
                raise Failed(f"--binary {name}: there are {', '.join(PACKAGES | JARS)}")

    def binary(self, name):
        """The binary of a database, or `java`, fetched or built on first use."""
        if name in self.paths:
            path = pathlib.Path(self.paths[name]).resolve()
            if not path.is_file() or not (name in JARS or os.access(path, os.X_OK)):
                raise Failed(f"{name}: {path} is no {'jar' if name in JARS else 'program'}")
            self.versions[name] = f"binary {path.name}"
            return path
        if self.source == "go" and name in MODULES:
            return self._built(name, MODULES[name])
        if name in JARS:
            return self._jar(name, JARS[name])
        if name == "java":
            return self._java()
        return self._packaged(name, PACKAGES[name])

    def _jar(self, name, jar):
        version = self.releases.get(name, jar.version)
        directory = self.cache / f"{name}-{version}"
        if not (directory / "version").exists():
            say(f"fetching {name} {version}")
            directory.mkdir(parents=True, exist_ok=True)
            fetch_jar(f"{jar.artifact}:{version}", f"{name} {version}", directory)
            # Last: it says that the rest is whole.
            (directory / "version").write_text(jar.release if version == jar.version else version)
        self.versions[name] = (directory / "version").read_text()
        return directory / f"{jar.artifact.partition(':')[2]}-{version}.jar"

    def _java(self):
        found = shutil.which("java")
        if found and (major := java_version(found)) and major >= JAVA_MIN:
            self.versions["java"] = f"Java {major}"
            return pathlib.Path(found)
        directory = self.cache / JAVA_PACKAGE
        if not (directory / "version").exists():
            self._fetch(JAVA_PACKAGE, directory)
            within(directory)
        programs = list(directory.glob("usr/lib/jvm/*/bin/java"))
        if not programs:
            raise Failed(f"Debian's package {JAVA_PACKAGE} has no program `java` in {directory}")
        self.versions["java"] = f"Debian's package {JAVA_PACKAGE} {(directory / 'version').read_text()}"
        return programs[0]

    def _built(self, name, module):
        version = self.releases.get(name, module.version)
        directory = self.cache / f"{name}-{version}"
        if not (directory / "version").exists():
            self._build(name, module, version, directory)
        self.versions[name] = (directory / "version").read_text()
        return directory / name

    def _build(self, name, module, version, directory):
        say(f"building {name} {version} from its Go module, once: some minutes")
        wanted = f"{module.path}@{version}"
        fetched = go(["mod", "download", "-json", wanted], f"{name} {version}", FETCH_S)
        source = json.loads(fetched)["Dir"]
        directory.mkdir(parents=True, exist_ok=True)
        build = ["build", "-C", source, "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", module.tags]
        go([*build, "-o", directory / name, module.package], f"{name} {version}", BUILD_S)
        made_by = go(["env", "GOVERSION", "CGO_ENABLED"], name, FETCH_S).split()
        without_c = "" if made_by[1] == "1" else ", without C"
        # Last: it says that the rest is whole.
        (directory / "version").write_text(f"{module.said(version)}, built by {made_by[0]}{without_c}")

    def _packaged(self, package, path):
        directory = self.cache / package
        if not (directory / "version").exists():
            self._fetch(package, directory)
        self.versions[package] = f"Debian's package {(directory / 'version').read_text()}"
        return directory / path

    def _fetch(self, package, directory):
        say(f"fetching {package}")
        directory.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(
            ["apt-get", "download", "--quiet", package], cwd=directory, timeout=FETCH_S, capture_output=True, text=True
        )
        files = list(directory.glob("*.deb"))
        if fetched.returncode or len(files) != 1:
            raise Failed(f"apt-get download {package}: {fetched.stderr.strip()} (`apt-get update` may be needed)")
        subprocess.run(["dpkg-deb", "-x", files[0], directory], check=True, timeout=FETCH_S)
        said = subprocess.run(["dpkg-deb", "-f", files[0], "Version"], check=True, capture_output=True, text=True)
        files[0].unlink()
        # Last: it says that the rest is whole.
        (directory / "version").write_text(said.stdout.strip())


def fetch_jar(artifact, what, directory):
    """Lets `mvn` copy an artifact, which it checks, into a directory."""
    repository = directory / "maven"
    command = ["mvn", "-B", "-q", f"-Dmaven.repo.local={repository}", MAVEN_COPY, f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={directory}"], capture_output=True, text=True, timeout=FETCH_S, cwd=directory
        )
    except FileNotFoundError:
        raise Failed(f"{what}: there is no `mvn` to fetch it with; --binary NAME=JAR takes a jar") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: `mvn` took more than {FETCH_S} s") from None
    finally:
        shutil.rmtree(repository, ignore_errors=True)
    if done.returncode:
        raise Failed(f"{what}: `mvn` failed (another release: --version NAME=VERSION): {done.stdout.strip()[-2_000:]}")


def java_version(program):
    """The major version that a `java` says; None when it says none."""
    said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=FETCH_S)
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found[1]) if found and not said.returncode else None


def within(directory):
    """Lets the absolute links of an unpacked package lead to its own files."""
    for path in directory.rglob("*"):
        if path.is_symlink() and (target := path.readlink()).is_absolute():
            own = directory / target.relative_to("/")
            if own.exists():
                path.unlink()
                path.symlink_to(os.path.relpath(own, path.parent))


def go(arguments, what, deadline_s):
    """What `go` prints; a failure with what it said and what may be done about it."""
    # A module may bring a go.work that names folders which its archive lacks.
    environment = {**os.environ, "GOWORK": "off"}
    command = ["go", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, env=environment)
    except FileNotFoundError:
        raise Failed(f"{what}: there is no `go` to build it with; `--source debian` takes Debian's packages") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: `{' '.join(command[:3])}` took more than {deadline_s} s") from None
    if done.returncode:
        # `go mod download -json` says in its answer what failed.
        said = (done.stderr.strip() or done.stdout.strip())[-2_000:]
        raise Failed(
            f"{what}: `{' '.join(command[:3])}` failed (another release: --version NAME=VERSION; Debian's packages: "
            f"--source debian): {said}"
        )
    return done.stdout


def options(parser):
    """The options that say where databases come from."""
    parser.add_argument(
        "--source",
        choices=["go", "debian"],
        help="VictoriaMetrics and Prometheus from their Go modules, or Debian's packages [go where it is installed]",
    )
    said = ", ".join(f"{name}={one.version}" for name, one in (MODULES | JARS).items())
    parser.add_argument(
        "--version",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VERSION",
        help=f"another release of a Go module or jar [{said}]",
    )
    parser.add_argument(
        "--binary", action="append", default=[], type=pair, metavar="NAME=PATH", help="a binary of your own instead"
    )


def pair(text):
    """NAME=VALUE of the command line."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text}: NAME=VALUE is wanted")
    return name, value
