"""What this machine and this installation have, for reports and for `blasdx env`."""

from __future__ import annotations

import platform
from importlib import metadata

from blasdx.cache import cache_folder
from blasdx.compiler import nvrtc_version
from blasdx.devices.driver import driver_version, gpus
from blasdx.errors import BlasdxError

PACKAGES = (
    "blasdx",
    "cuda-bindings",
    "cuda-core",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvdisasm",
    "cupy-cuda13x",
    "numpy",
    "ml_dtypes",
    "pydantic",
)


def environment() -> dict[str, str]:
    """Versions, driver, GPUs and the cache folder; "none" for what is absent. Needs no driver."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    found |= {package: _version(package) for package in PACKAGES}
    try:
        found["nvrtc in use"] = "{}.{}".format(*nvrtc_version())
    except (BlasdxError, RuntimeError) as error:
        found["nvrtc in use"] = f"none ({error})"
    driver = driver_version()
    found["cuda driver"] = "none" if driver is None else "{}.{}".format(*driver)
    found["gpus"] = "; ".join(f"{name} (SM {sm})" for name, sm in gpus()) or "none"
    found["cache folder"] = str(cache_folder())
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
