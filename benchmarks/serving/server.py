"""A server for the benchmark `serving`: `python -m benchmarks.serving.server ENGINE PORT`.

The application and the settings of `tf-transformer serve` for the included translator, computed by
this library or, with the same weights and tokenizer, by CTranslate2. Two more addresses:
`/profile/start` and `/profile/stop`, which says what was traced and compiled in between.
"""

import sys

from tf_transformer.cli.arguments import import_tensorflow

OWN, FLOAT32, INT8 = "tf_transformer", "CTranslate2 float32", "CTranslate2 int8"


def main(engine, port):
    """Serve until the process is ended."""
    import_tensorflow(optimize_graphs=False, share_operations=False)
    import uvicorn

    from tf_transformer.export import shipped_model
    from tf_transformer.serving import Task, create_app

    if engine == OWN:
        task = Task(shipped_model("en-zh"))
    else:
        from benchmarks.serving.peers.ctranslate2_task import CTranslate2Task

        task = CTranslate2Task("en-zh", engine.split()[1])
    app = create_app(task)
    add_profile(app)
    uvicorn.run(app, port=port, log_level="warning")


def add_profile(app):
    """Add the two addresses."""
    from tf_transformer.training import count_compilations

    running = []

    @app.post("/profile/start")
    async def start():
        running.append(count_compilations())
        running.append(running[0].__enter__())

    @app.post("/profile/stop")
    async def stop():
        running[0].__exit__(None, None, None)
        return {"traces": running[1].traces, "xla": running[1].xla}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
