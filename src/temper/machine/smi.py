"""Reading a ``tt-smi -s`` snapshot, old or new, without trusting any field of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SmiDevice:
    """What one entry of ``device_info`` says; None where it says nothing."""

    bus_id: str = ""
    board_type: str = ""
    dram_trained: bool | None = None
    dram_speed: str = ""
    dram_temperature_c: float | None = None
    firmware: str = ""
    eth_firmware: str = ""
    temperature_c: float | None = None
    power_w: float | None = None
    voltage_v: float | None = None
    current_a: float | None = None
    clock_mhz: float | None = None
    fan_rpm: float | None = None
    temperature_limit_c: float | None = None
    power_limit_w: float | None = None


def parse(text: str) -> list[SmiDevice]:
    """The devices in a snapshot; empty when there is no JSON object in the text."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return []
    try:
        data = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return []
    devices = data.get("device_info") if isinstance(data, dict) else None
    if not isinstance(devices, list):
        return []
    return [_device(entry) for entry in devices if isinstance(entry, dict)]


def _device(entry: dict[str, Any]) -> SmiDevice:
    board, telemetry = _part(entry, "board_info"), _part(entry, "telemetry")
    limits, firmwares = _part(entry, "limits"), _part(entry, "firmwares")
    raw, gddr = _part(entry, "smbus_telem"), _part(entry, "gddr_telemetry")
    board_type = _word(board.get("board_type"))
    return SmiDevice(
        bus_id=_word(board.get("bus_id")),
        # Wormhole entries end in L or R: the chip with PCIe and the one behind it.
        board_type=re.sub(r"\s+[LR]$", "", board_type).lower(),
        dram_trained=_trained(board.get("dram_status"), raw, board_type, firmwares),
        dram_speed=_word(board.get("dram_speed")),
        dram_temperature_c=_number(gddr.get("max_temp")),
        firmware=_word(firmwares.get("fw_bundle_version")),
        eth_firmware=_word(firmwares.get("eth_fw")),
        temperature_c=_number(telemetry.get("asic_temperature")),
        power_w=_number(telemetry.get("power")),
        voltage_v=_number(telemetry.get("voltage")),
        current_a=_number(telemetry.get("current")),
        clock_mhz=_number(telemetry.get("aiclk")),
        fan_rpm=_number(telemetry.get("fan_speed")),
        temperature_limit_c=_number(limits.get("thm_limit")),
        power_limit_w=_number(limits.get("tdp_limit")),
    )


def _trained(
    status: object, raw: dict[str, Any], board_type: str, firmwares: dict[str, Any]
) -> bool | None:
    """The raw register where it is there, since old versions test only its first channel."""
    word = _hex(raw.get("DDR_STATUS"))
    board = board_type.lower()
    if word is not None and board.startswith("n"):
        return word & 0xFFFFFF == 0x222222
    if word is not None and board.startswith("p"):
        # Two bits a controller: even bit trained, odd bit error; the upper half of newer
        # firmware (self-test) uses the same pairs. A p100 lacks one controller.
        halves = 2 if word >> 16 else 1
        pairs = [(word >> shift) & 3 for shift in range(0, 16 * halves, 2)]
        absent = halves if board.startswith("p100") else 0
        return not any(pair & 2 for pair in pairs) and pairs.count(0) <= absent
    if isinstance(status, bool):
        return status
    return {"true": True, "y": True, "false": False, "n": False}.get(_word(status).lower())


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    value = entry.get(name)
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str:
    text = str(value).strip() if isinstance(value, (str, int, float)) else ""
    return "" if text.lower() in ("n/a", "none", "null") else text[:80]


def _number(value: object) -> float | None:
    # Decimal commas appear when a snapshot was made under another locale.
    found = re.search(r"-?\d+(?:[.,]\d+)?", _word(value))
    return float(found.group().replace(",", ".")) if found else None


def _hex(value: object) -> int | None:
    try:
        return int(_word(value), 16)
    except ValueError:
        return None
