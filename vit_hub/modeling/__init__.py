"""The network. It imports torch only; the ``*_myvit`` files, its home in transformers, import transformers too."""
