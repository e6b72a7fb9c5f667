"""The `proxode` command. It needs an extra; the absence of that is said in one line, not in a traceback."""

from __future__ import annotations


def main() -> None:
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise SystemExit(f"the proxode command needs {error.name}: pip install typer rich matplotlib") from None
    app()


if __name__ == "__main__":
    main()
