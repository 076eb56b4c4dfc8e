"""All known messages, the specific ones before the general."""

from __future__ import annotations

from temper.doctor import messages_machine, messages_metal, messages_tools

MESSAGES = (*messages_metal.MESSAGES, *messages_machine.MESSAGES, *messages_tools.MESSAGES)
