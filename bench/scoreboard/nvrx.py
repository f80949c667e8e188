"""Run NVRx's GPU checks without its other modules, which need torch and a network: nvrx.py health_check.py GPUS"""

import importlib.util
import logging
import sys
import types

NAME = "nvidia_resiliency_ext.shared_utils.health_check"
LEFT_OUT = ("nvidia_resiliency_ext", "httpx", "torch")


class Names(type):
    """A class whose unknown attributes are their own names: LogConfig.name is the name of a logger."""

    def __getattr__(cls, name):
        return name


class Anything(types.ModuleType):
    """A module in which every name is a class that accepts everything."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name):
        return Names(name, (), {"__init__": lambda *_, **__: None})


class Finder:
    @staticmethod
    def find_spec(name, *_):
        return importlib.util.spec_from_loader(name, Finder) if name.split(".")[0] in LEFT_OUT else None

    @staticmethod
    def create_module(spec):
        return Anything(spec.name)

    @staticmethod
    def exec_module(module):
        pass


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    spec = importlib.util.spec_from_file_location(NAME, sys.argv[1])
    checks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checks)
    for index in range(int(sys.argv[2])):
        for name in ("GPUHealthCheck", "NVLHealthCheck"):
            print(f"GPU {index} {name} {getattr(checks, name)(device_index=index)()}", flush=True)
