"""keras-hub presets: the folder with config.json, model.weights.h5 and task.weights.h5."""

from _run import main

main(__doc__, "keras-hub")
