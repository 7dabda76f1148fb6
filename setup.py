"""The distribution: three packages, the `surreal-like` command, and what they need."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

# The address stands only here: after a change run `make address`, which writes it into the files
# that show it. The name is not ours on any package index.
NAME = "surreal-like"
URL = ""  # of the repository, without a slash at the end

# Code, which stays as it is, or a link or picture whose target is no address.
RELATIVE = re.compile(r"```.*?```|`[^`]*`|(!?)\[([^]]*)\]\((?!\w+:)([^)\s]+)\)", re.DOTALL)


def without_relative_links(text: str, url: str) -> str:
    """Return a page of this repository as it can be shown elsewhere, with links to `url`.

    Without an address a link becomes its text, and a picture its description.
    """

    def elsewhere(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if target is None:
            return found[0]
        if not url:
            return words
        path = f"README.md{target}" if target.startswith("#") else target
        return f"{picture}[{words}]({url}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return RELATIVE.sub(elsewhere, text)


def read_version() -> str:
    """Return the version that stands in `session/version.py`, without importing the package."""
    text = (HERE / "session" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^VERSION = "([^"]+)"$', text, flags=re.MULTILINE)
    if match is None:
        raise ValueError('session/version.py has no line of the form VERSION = "1.2.3"')
    return match.group(1)


PACKAGES = ("session", "surreal_like", "main")
# Files that the command reads, and that stand elsewhere in the repository: the shipped experiments,
# and the times in which they were learned.
OUTSIDE = {"surreal_like.configs": "configs", "surreal_like.results": "benchmarks/results"}

INSTALL_REQUIRES = [
    "pyzmq>=25.1",
    "torch>=2.10",  # those before cannot export all agents
    "gymnasium>=1.2.3",  # the first whose Box2D needs no compiler
    "numpy>=1.26",
    "msgpack>=1.0.5",
    "tensorboard>=2.14",
    "pillow>=13.0",  # the first that writes animated PNG with pictures longer than 65 s
    "pyyaml>=6.0.1",
    "libtmux>=0.46",
    "rich>=13.7",
    "safetensors>=0.4.3",
    "setproctitle>=1.3.3",
    "psutil>=6.0",
]

EXTRAS = {
    "atari": ["ale-py>=0.12"],  # its vector code, with the step after a game's end a reset
    "box2d": ["gymnasium[box2d]>=1.2.3"],
    "mujoco": ["gymnasium[mujoco]>=1.2.3"],
    "plot": ["matplotlib>=3.10.8"],
    "video": ["imageio[ffmpeg]>=2.34", "gymnasium[classic-control]>=1.2.3"],
    "notebook": ["jupyterlab>=4.1", "ipywidgets>=8.1", "nbclient>=0.10", "matplotlib>=3.10.8"],
    # Browsers as clients; certificates.
    "gateway": ["websockets>=14", "cryptography>=43"],
    "export": ["onnx>=1.19", "onnxscript>=0.5.4", "onnxruntime>=1.23"],
    "s3": ["s3fs>=2024.2"],
    "tune": ["optuna>=4.1"],
}
# Sinks of metrics, with what a local folder of MLflow needs. Not in "all": few people want both.
SINKS = {
    "wandb": ["wandb>=0.19"],
    "mlflow": ["mlflow-skinny>=3.0", "sqlalchemy>=2.0", "alembic>=1.13"],
}
EXTRAS["all"] = sorted({line for lines in EXTRAS.values() for line in lines})
# Not in "all": minigrid, highway-env and multi bring pygame-ce, which is installed over pygame.
EXTRAS["envpool"] = ["envpool>=1.2.5"]  # with its assets more than 200 MB
EXTRAS["offline"] = ["minari[hdf5]>=0.5.4"]  # needs numpy 2
EXTRAS["ray"] = ["ray[default]>=2.40"]  # 240 MB; `ray job` needs what `default` brings
EXTRAS["minatar"] = ["minatar>=1.0.15"]
EXTRAS["minigrid"] = ["minigrid>=3.0"]
EXTRAS["robotics"] = ["gymnasium-robotics>=1.4", "mujoco<=3.10"]  # Fetch asserts with later ones
EXTRAS["multi"] = ["pettingzoo>=1.27", "mpe2>=1.1", "pygame-ce>=2.3"]
# What `make test-all` needs in addition: every environment in the table of docs/environments.md.
EXTRAS["environments"] = ["popgym>=1.0", "highway-env>=1.10"]
EXTRAS["environments"] += EXTRAS["minatar"] + EXTRAS["minigrid"] + EXTRAS["multi"]
EXTRAS["environments"] += EXTRAS["robotics"]
EXTRAS |= SINKS
# The documentation site: `make docs`.
EXTRAS["docs"] = ["sphinx>=9.0", "furo>=2025.12", "myst-parser>=5.0"]
EXTRAS["dev"] = [
    "pytest>=8.4",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.8",
    "hypothesis>=6.140",
    "ruff==0.17.5",  # another release formats differently
    "mypy>=1.13",
    "pandas>=2.2",  # an example reads metrics with it
    "moto[server]>=5.1",  # an S3 server, for mirrors
    "pettingzoo>=1.27",
    "kubernetes-validate>=1.37",
    "types-PyYAML",
    "types-psutil",
    "websocket-client>=1.8",  # drives a browser
    "websockets>=14",
]

setup(
    name=NAME,
    version=read_version(),
    description="Distributed reinforcement learning built from small processes",
    long_description=without_relative_links((HERE / "README.md").read_text(encoding="utf-8"), URL),
    long_description_content_type="text/markdown",
    project_urls={"Source": URL, "Issues": f"{URL}/issues"} if URL else {},
    author="the surreal_like authors",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[
        *find_packages(include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
        *OUTSIDE,
    ],
    package_dir=OUTSIDE,
    package_data={
        **{name: ["py.typed", "*.pyi", "**/*.pyi"] for name in PACKAGES},
        "main.cli": ["project/*"],
        "surreal_like.configs": ["*.yaml", "trained/**/*"],
        "surreal_like.results": ["learn.json", "learn_multi.json"],
        "surreal_like.addons.gateway.clients": ["*.js", "*.hpp", "*.cpp"],
        "surreal_like.addons.gateway.page": ["*.html", "*.js"],
    },
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["surreal-like = surreal_like.__main__:main"]},
    zip_safe=False,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
