"""How the workers of one trial find each other: torch's process group, which on a Ray that listens
on loopback listens there alone too."""

import importlib
import os
import socket
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


def make_torch_config(backend: str) -> TorchConfig:
    """How Ray Train sets up the process group of a trial that runs on this node; ``backend`` is
    ``gloo`` or ``nccl``."""
    import ray

    is_here = ray.util.get_node_ip_address() in ("127.0.0.1", "::1")
    return LoopbackTorchConfig(backend=backend) if is_here else TorchConfig(backend=backend)


class LoopbackTorchConfig(TorchConfig):
    """A process group of one machine."""

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """What Ray Train calls as the workers start."""
        return _LoopbackBackend


class _LoopbackBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(_stay_on_loopback)
        super().on_start(worker_group, backend_config)


def _stay_on_loopback() -> None:
    """In a worker: what it opens from now on is on loopback. By default gloo and NCCL take the
    interface that other machines see, and the store in which workers meet takes all of them."""
    # `torch.distributed.rendezvous` is a function of that module, which hides it.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    rendezvous.TCPStore = _open_store  # type: ignore[attr-defined]


def _open_store(*, host_name: str, port: int, is_master: bool, **options: Any) -> Any:
    """A ``TCPStore`` that listens on the address by which it is called."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    if is_master:
        options["master_listen_fd"] = socket.create_server((host_name, port)).detach()
    return TCPStore(host_name=host_name, port=port, is_master=is_master, **options)
