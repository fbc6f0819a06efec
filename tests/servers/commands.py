"""How each server is started: its command line and environment for a folder and free ports.

The first port is the one that speaks S3.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

Command = tuple[list[str], dict[str, str]]
Keys = tuple[str, str]
Program = Callable[[str], str]


def ministack(program: Program, folder: Path, ports: list[int], keys: Keys) -> Command:
    extra = {
        "GATEWAY_PORT": str(ports[0]),
        "BIND_HOST": "127.0.0.1",
        "SERVICES": "s3",
        "LOG_LEVEL": "WARNING",
        "S3_DATA_DIR": str(folder / "data"),
    }
    return [program("ministack")], extra


def seaweedfs(program: Program, folder: Path, ports: list[int], keys: Keys) -> Command:
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "identities.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    options: dict[str, object] = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "filer.saveToFilerLimit": 4096,
        "admin.ui": "false",
        "webdav": "false",
        "s3.autoCreateBucket": "false",
        "s3.config": config,
        **seaweedfs_places(folder, ports),
    }
    return [program("weed"), "mini", *(f"-{name}={value}" for name, value in options.items())], {}


def seaweedfs_places(folder: Path, ports: list[int]) -> dict[str, object]:
    """The options by which it is in nobody's way."""
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, *more = ports
    return {
        "s3.port": s3,
        "s3.port.grpc": s3_grpc,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.port": master,
        "master.port.grpc": master_grpc,
        "volume.port": volume,
        "volume.port.grpc": volume_grpc,
        "filer.port": filer,
        "filer.port.grpc": filer_grpc,
        "filer.localSocket": folder / "filer.sock",
        "s3.localSocket": folder / "s3.sock",
        "admin.port": more[0],
        "admin.port.grpc": more[1],
    }


def moto(program: Program, folder: Path, ports: list[int], keys: Keys) -> Command:
    return [program("moto_server"), "-H", "127.0.0.1", "-p", str(ports[0])], {}


def serial_moto(program: Program, folder: Path, ports: list[int], keys: Keys) -> Command:
    script = str(Path(__file__).with_name("serial_moto.py"))
    return [sys.executable, script, "-H", "127.0.0.1", "-p", str(ports[0])], {}


COMMANDS: dict[str, Callable[[Program, Path, list[int], Keys], Command]] = {
    "ministack": ministack,
    "seaweedfs": seaweedfs,
    "moto": moto,
    "serial moto": serial_moto,
}
