"""transformers' own common test-suite, applied to our classes.

The mixins are transformers' and are not kept here: ``VIT_HUB_TRANSFORMERS_TESTS`` names a folder that holds them as
``tests/`` (sdist of the installed version, with the helper packages of the git repository) and the installed package
as ``src/transformers``. ``scripts/transformers-suite`` makes such a folder and runs this file.
"""

import json
import os
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("VIT_HUB_TRANSFORMERS_TESTS", "-"))
if not (FOLDER / "tests" / "test_modeling_common.py").is_file():
    pytest.skip("VIT_HUB_TRANSFORMERS_TESTS names no folder with transformers' tests", allow_module_level=True)

import torch  # noqa: E402  # the folder has to be known first
from PIL import Image  # noqa: E402
from transformers import image_utils  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from vit_hub import (  # noqa: E402
    MyViTBackbone,
    MyViTConfig,
    MyViTForImageClassification,
    MyViTForMaskedImageModeling,
    MyViTImageProcessor,
    MyViTImageProcessorPil,
    MyViTModel,
)

# Warnings are the suite's own business here.
pytestmark = pytest.mark.filterwarnings("default")

# The suite chooses inputs by class name, from tables that `register` does not fill.
for table, name in {
    "MODEL_MAPPING_NAMES": "MyViTModel",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "MyViTForImageClassification",
    "MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING_NAMES": "MyViTForMaskedImageModeling",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES": "MyViTBackbone",
}.items():
    getattr(modeling_auto, table)["myvit"] = name

SMALL = {
    "image_size": 30,
    "patch_size": 2,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}
PLAIN = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
# Everything the plain one has not: another pooling, registers, gates, scales, rotary positions ...
RICH = {
    "num_register_tokens": 2,
    "pos_embed": "rope",
    "global_pool": "map",
    "layerscale_value": 0.1,
    "mlp_layer": "swiglu",
    "hidden_act": "silu",
    "qk_norm": True,
    "pre_norm": True,
    "representation_size": 24,
}


def _write_tiny_models(folder: Path) -> None:
    """Models for the pipeline tests, where the suite would otherwise ask the Hub."""
    summary = {}
    for model in (MyViTModel, MyViTForImageClassification):
        target = folder / "myvit" / model.__name__
        model(MyViTConfig(**SMALL)).save_pretrained(target)
        MyViTImageProcessor(size={"height": 30, "width": 30}).save_pretrained(target)
        summary[model.__name__] = {"tokenizer_classes": [], "processor_classes": ["MyViTImageProcessor"]}
    (folder / "reports").mkdir()
    (folder / "reports" / "tiny_model_summary.json").write_text(json.dumps(summary))


def _offline(load: Callable, picture: Path) -> Callable:
    """A loader of images that has a picture at hand wherever the suite names an address."""

    def load_local(image, *args, **kwargs):
        remote = isinstance(image, str) and image.startswith("http")
        return load(str(picture) if remote else image, *args, **kwargs)

    return load_local


TINY = tempfile.TemporaryDirectory()
_write_tiny_models(Path(TINY.name))
os.environ["TRANSFORMERS_TINY_MODEL_PATH"] = TINY.name
PICTURE = Path(TINY.name) / "picture.png"
Image.effect_noise((64, 48), 64).convert("RGB").save(PICTURE)
for loader in ("load_image", "load_image_as_tensor"):
    setattr(image_utils, loader, _offline(getattr(image_utils, loader), PICTURE))
sys.path[:0] = [str(FOLDER), str(FOLDER / "utils")]

import tests  # noqa: E402  # theirs, or ours of the same name, which then looks among theirs as well

if str(FOLDER / "tests") not in tests.__path__:
    tests.__path__.append(str(FOLDER / "tests"))

from tests.test_backbone_common import BackboneTesterMixin  # noqa: E402
from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_image_processing_common import ImageProcessingTester, ImageProcessingTestMixin  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor  # noqa: E402

if (FOLDER / "tests" / "pipelines").is_dir():
    from tests.pipelines import test_pipelines_image_classification as theirs
    from tests.test_pipeline_mixin import PipelineTesterMixin, transformers_module

    transformers_module.MyViTImageProcessor = MyViTImageProcessor
    with Image.open(PICTURE) as picture:
        modes = [{"image": picture.convert(mode)} for mode in ("RGBA", "LA", "L")]
        theirs.ImageClassificationPipelineTests._dataset = modes
else:

    class PipelineTesterMixin:
        """Nothing: the pipeline tests are in transformers' repository only."""


class Tester:
    """The inputs and the numbers that the mixins ask for."""

    __test__ = False  # a helper, whatever its name
    batch_size = 3
    num_channels = 3
    is_training = True
    use_labels = True
    type_sequence_label_size = 10

    def __init__(self, parent, **changes):
        self.parent = parent
        self.values = {**SMALL, **changes}
        for key, value in self.values.items():
            setattr(self, key, value)
        self.seq_length = (self.image_size // self.patch_size) ** 2 + 1 + self.values.get("num_register_tokens", 0)
        self.mask_length = (self.image_size // self.patch_size) ** 2
        self.num_masks = self.mask_length // 2

    def get_config(self):
        return MyViTConfig(**self.values, attn_implementation="eager")

    def prepare_config_and_inputs(self):
        size = [self.batch_size, self.num_channels, self.image_size, self.image_size]
        return self.get_config(), floats_tensor(size), ids_tensor([self.batch_size], self.type_sequence_label_size)

    def prepare_config_and_inputs_for_common(self):
        config, pixel_values, _ = self.prepare_config_and_inputs()
        return config, {"pixel_values": pixel_values}


class MyViTModelTest(ModelTesterMixin, PipelineTesterMixin, unittest.TestCase):
    all_model_classes = (MyViTModel, MyViTForImageClassification, MyViTForMaskedImageModeling, MyViTBackbone)
    pipeline_model_mapping = {  # noqa: RUF012  # the mixin's way
        "image-feature-extraction": MyViTModel,
        "image-classification": MyViTForImageClassification,
    }
    test_resize_embeddings = False
    changes = PLAIN

    def setUp(self):
        self.model_tester = Tester(self, **self.changes)
        self.config_tester = ConfigTester(self, config_class=MyViTConfig, has_text_modality=False, hidden_size=36)

    def test_config(self):
        self.config_tester.run_common_tests()

    @unittest.skip(reason="images have no embeddings to pass in")
    def test_inputs_embeds(self):
        pass

    def test_model_get_set_embeddings(self):
        for model_class in self.all_model_classes:
            model = model_class(self.model_tester.get_config())
            assert isinstance(model.get_input_embeddings(), torch.nn.Module)
            assert model.get_output_embeddings() is None


class MyViTRichModelTest(MyViTModelTest):
    changes = RICH


class MyViTBackboneTest(BackboneTesterMixin, unittest.TestCase):
    all_model_classes = (MyViTBackbone,)
    config_class = MyViTConfig
    has_attentions = True

    def setUp(self):
        self.model_tester = Tester(self, num_hidden_layers=4)


class ProcessorTester(ImageProcessingTester):
    def __init__(self, parent, **kwargs):
        kwargs.setdefault("size", {"height": 18, "width": 18})
        kwargs.setdefault("image_mean", [0.5, 0.5, 0.5])
        kwargs.setdefault("image_std", [0.5, 0.5, 0.5])
        super().__init__(parent, **kwargs)

    def _get_image_processing_classes(self):
        return {"torchvision": MyViTImageProcessor, "pil": MyViTImageProcessorPil}


class MyViTImageProcessingTest(ImageProcessingTestMixin, unittest.TestCase):
    image_processor_tester_class = ProcessorTester

    @unittest.skip(reason="runs a fresh process that does not import vit_hub")
    def test_pil_can_run_without_torchvision(self):
        pass
