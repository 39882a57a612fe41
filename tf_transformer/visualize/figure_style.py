"""What all figures have in common: colours, a light and a dark page, a font that shows Chinese."""

import contextlib
import warnings

from tf_transformer.errors import MissingPackage

# Okabe and Ito's colours, told apart with any kind of colour blindness; yellow, too pale on white,
# and black are left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = "os^Dv*"
MAP = "cividis"  # a scale of colours that is even in grey too
# Those of Windows, macOS and the packages of Linux distributions.
_CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "SimHei",
    "Arial Unicode MS",
)
_DARK = {
    "figure.facecolor": "#16181d",
    "axes.facecolor": "#16181d",
    "savefig.facecolor": "#16181d",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#e6e6e6"
    ),
    "legend.facecolor": "#16181d",
    "grid.color": "#5a5f6b",
}


def chinese_font():
    """Find an installed font that shows Chinese.

    Returns:
        str, the family that the figures use after Matplotlib's own; or None if there is none.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        >>> chinese_font() is None or isinstance(chinese_font(), str)
        True
    """
    _need_matplotlib()
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return next((family for family in _CHINESE if family in installed), None)


@contextlib.contextmanager
def figure_style(dark=False, labels=()):
    """Draw with the colours and fonts of this package inside a `with` block."""
    _need_matplotlib()
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    font = chinese_font()
    if font is None and any(ord(c) > 0x2E7F for label in labels for c in str(label)):
        warnings.warn(
            "No installed font shows Chinese, so its characters become boxes. Install one, for "
            "example the package fonts-noto-cjk, and restart Python.",
            stacklevel=3,
        )
    lines = cycler(color=COLOURS) + cycler(marker=list(MARKERS))
    settings = {
        "font.family": ["sans-serif", *([font] if font else [])],
        "axes.prop_cycle": lines,
        "axes.unicode_minus": False,  # several Chinese fonts have no minus sign of their own
        "image.cmap": MAP,
        **(_DARK if dark else {}),
    }
    with rc_context(settings):
        yield Figure


def _need_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackage('figures need Matplotlib: pip install -e ".[notebooks]"') from error
