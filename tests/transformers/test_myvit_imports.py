"""Registration in fresh processes: any order, nothing heavy before it is needed."""

import subprocess
import sys

import pytest

KNOWN = """
from transformers import AutoConfig, AutoModel, AutoModelForImageClassification, AutoBackbone, AutoImageProcessor
config = AutoConfig.for_model("myvit", hidden_size=16, num_hidden_layers=1, num_attention_heads=1)
import vit_hub
assert type(config) is vit_hub.MyViTConfig
assert type(AutoModel.from_config(config)) is vit_hub.MyViTModel
assert type(AutoModelForImageClassification.from_config(config)) is vit_hub.MyViTForImageClassification
assert type(AutoBackbone.from_config(config)) is vit_hub.MyViTBackbone
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
assert IMAGE_PROCESSOR_MAPPING[vit_hub.MyViTConfig]["pil"] is vit_hub.MyViTImageProcessorPil
"""


def run(code):
    result = subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_package_alone_is_cheap():
    run("import vit_hub, sys; assert not {'torch', 'timm', 'transformers', 'numpy'} & set(sys.modules)")


def test_a_configuration_costs_no_models():
    run(
        "import vit_hub, sys; from transformers import AutoConfig; AutoConfig.for_model('myvit');"
        "assert 'vit_hub.modeling.modeling_myvit' not in sys.modules"
    )


@pytest.mark.parametrize(
    "first",
    [
        "import vit_hub, transformers",
        "import transformers, vit_hub; vit_hub.MyViTImageProcessor",
        "from transformers import AutoModel, AutoImageProcessor; import vit_hub",
        "import vit_hub; from transformers import ViTModel, Trainer",  # modeling_layers imports modeling_auto
        "from vit_hub import MyViTForImageClassification",  # our module imports both
    ],
)
def test_any_order_registers(first):
    run(first + "\n" + KNOWN)


def test_registering_again_changes_nothing():
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    import vit_hub
    from vit_hub.transformers_plugin import _STEPS, register

    for name in _STEPS:
        register(name)
    assert MODEL_MAPPING[vit_hub.MyViTConfig] is vit_hub.MyViTModel
