"""Training: the Trainer, gradient checkpointing, LoRA."""

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer, TrainingArguments

from vit_hub import MyViTForImageClassification, MyViTForMaskedImageModeling, MyViTModel


class Squares(torch.utils.data.Dataset):
    """Images whose brightness is their class."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        noise = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return {"pixel_values": noise + index % 5, "labels": index % 5}


def trainer(model, folder, **arguments):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "learning_rate": 1e-2,
        "save_steps": 2,
        "logging_steps": 100,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
        "dataloader_pin_memory": False,
    }
    return Trainer(
        model, TrainingArguments(**{**settings, **arguments}), train_dataset=Squares(), eval_dataset=Squares()
    )


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


def test_training_resumes_exactly(small, tmp_path):
    model = MyViTForImageClassification(small(hidden_dropout_prob=0.1, drop_path_rate=0.1))
    trainer(model, tmp_path).train()
    saved = load_file(tmp_path / "checkpoint-6" / "model.safetensors")
    assert {f"vit.{name}" for name in saved} == set(model.state_dict())

    again = MyViTForImageClassification(small(hidden_dropout_prob=0.1, drop_path_rate=0.1))
    trainer(again, tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert same(model.state_dict(), again.state_dict())


def test_the_best_checkpoint_comes_back(small, tmp_path):
    model = MyViTForImageClassification(small())
    run = trainer(
        model,
        tmp_path,
        load_best_model_at_end=True,
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="eval_loss",
        greater_is_better=True,  # the worst loss: certainly not the last weights
    )
    run.train()
    assert not run.state.best_model_checkpoint.endswith("-6")
    best = MyViTForImageClassification.from_pretrained(run.state.best_model_checkpoint)
    assert same(best.state_dict(), model.state_dict())


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient(reentrant, small, pixels):
    model = MyViTForImageClassification(small(drop_path_rate=0.3, pos_embed="rope")).train()
    labels = torch.tensor([0, 1, 2])

    def gradients():
        torch.manual_seed(1)
        model.zero_grad()
        model(pixels.requires_grad_(reentrant), labels=labels).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    plain = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    calls = []
    model.vit.blocks[0].attn.register_forward_hook(lambda *_: calls.append(1))
    for left, right in zip(plain, gradients(), strict=True):
        torch.testing.assert_close(left, right)
    assert len(calls) == 2  # once forward, once again backward


def test_masked_image_modelling_trains(small, pixels):
    model = MyViTForMaskedImageModeling(small()).train()
    model(pixels, torch.rand(3, 16) > 0.5).loss.backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


def test_lora_on_the_fused_projection_trains_and_merges(small, pixels, tmp_path):
    base = MyViTForImageClassification(small()).eval()
    before = base(pixels).logits.detach()
    config = peft.LoraConfig(r=2, target_modules=["qkv"], modules_to_save=["head"], init_lora_weights=False)
    model = peft.get_peft_model(base, config)
    assert not torch.allclose(model(pixels).logits, before)  # the last, lean block listens to its adapter too
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    model(pixel_values=pixels, labels=torch.tensor([0, 1, 2])).loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert any("blocks.1.attn.qkv.lora_A" in name for name in trained)
    assert all("lora_" in name or "modules_to_save" in name for name in trained)
    optimizer.step()
    model.eval()
    adapted = model(pixels).logits.detach()
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(pixels).logits, adapted, atol=1e-5, rtol=0)
    merged.save_pretrained(tmp_path)
    assert "blocks.0.attn.qkv.weight" in load_file(tmp_path / "model.safetensors")
    again = MyViTForImageClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(again(pixels).logits, adapted, atol=1e-5, rtol=0)


def test_an_adapter_loads_through_transformers(small, pixels, tmp_path):
    base = MyViTModel(small()).eval()
    base.save_pretrained(tmp_path / "base")
    base = MyViTModel.from_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["qkv"], init_lora_weights=False)).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    model = MyViTModel.from_pretrained(tmp_path / "adapter").eval()
    torch.testing.assert_close(model(pixels).pooler_output, adapted(pixels).pooler_output)
