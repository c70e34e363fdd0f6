"""Logging of the service and of its server: one JSON object per line."""

import json
import logging
from typing import Any


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    FIELDS = ("request_id", "method", "path", "status", "milliseconds", "bundle")

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in self.FIELDS if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": "mgformer.serving.logs.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"mgformer.serving": {"level": "INFO"}},
}
"""For `logging.config.dictConfig` in every process of the service."""
