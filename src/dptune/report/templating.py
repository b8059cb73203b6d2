"""How pages are put together: jinja2 templates that escape everything, and one look for all of them.

jinja2 comes with the extra ``report``. A template gets a page's own frozen value and nothing else;
``safe`` stands in a template only where that value holds what the renderer or a picture has escaped.
"""

from __future__ import annotations

from dptune._version import __version__
from dptune.errors import InvalidInput
from dptune.report.svg import CSS
from dptune.sealed.rendering import STYLE

__all__ = ["render"]

_INSTALL = "Pages need jinja2: python -m pip install 'dptune[report]'."


def render(template: str, page: object) -> str:
    """A page from its template.

    Args:
        template: the name of a file in ``report/templates``.
        page: the page's value, which the template calls ``page``.

    Returns:
        The text of the page.

    Raises:
        InvalidInput: jinja2 is not installed; the message has the command.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidInput(_INSTALL) from None

    room = Environment(
        loader=PackageLoader("dptune.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return room.get_template(template).render(page=page, style=STYLE + CSS, version=__version__)
