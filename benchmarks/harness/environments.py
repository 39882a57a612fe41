"""The libraries that benchmarks compare with, each in its own virtual environment."""

import os
import subprocess
import venv
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
ENVIRONMENTS = BENCHMARKS / ".environments"
# Library: what pip installs. Versions are pinned so that a result can be repeated.
LIBRARIES = {
    "tf_transformer": [f"{ROOT}[train,bert,lite]"],
    "keras-hub": [f"{ROOT}[train,bert]", "keras-hub==0.32.0"],
    "tensorflow-text": [f"{ROOT}[train]", "tensorflow-text==2.21.1", "sentencepiece"],
    "torch": ["torch==2.13.0", "numpy"],
    "jax": ["jax==0.10.2", "numpy"],
    "onnxruntime": ["onnx==1.23.2", "onnxruntime==1.32.0", "numpy"],
    "CTranslate2": ["ctranslate2==4.8.5", "numpy"],
    "ctranslate2-transformers": [
        "ctranslate2==4.8.5",
        "torch==2.13.0",
        "transformers==4.57.6",
        "numpy",
    ],
    "optimum-onnx": ["optimum-onnx[onnxruntime]==0.1.0", "torch==2.13.0", "numpy"],
    "served": [f"{ROOT}[serve]", "ctranslate2==4.8.5"],
    "scikit-learn": ["scikit-learn", "numpy"],
    "bertviz": ["bertviz==1.4.1", "torch==2.13.0", "ipython", "numpy"],
    "huggingface": [
        "torch==2.13.0",
        "transformers==5.23.0",
        "onnx",
        "onnxruntime",
        "numpy",
    ],
}
# What the tf-transformer command sets for itself; all libraries get the same.
SETTINGS = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def interpreter(library):
    """The Python of a library's environment, which is created if it is missing or out of date."""
    folder = ENVIRONMENTS / library
    python, wanted = folder / "bin" / "python", "\n".join(LIBRARIES[library])
    finished = folder / "installed.txt"  # written last: an interrupted installation is repeated
    if not finished.exists() or finished.read_text() != wanted:
        print(f"installing {library} into {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *LIBRARIES[library]], check=True)
        finished.write_text(wanted)
    return python


def start(library, module, *arguments, **options):
    """Start `python -m MODULE` in a library's environment, with this checkout on the path.

    Returns:
        `subprocess.Popen`, whose standard output is a pipe.
    """
    return subprocess.Popen(
        [interpreter(library), "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def run(library, module, *arguments):
    """Run `python -m MODULE` in a library's environment and return its standard output.

    Raises:
        subprocess.CalledProcessError: If the program fails.
    """
    with start(library, module, *arguments) as process:
        output, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    return output
