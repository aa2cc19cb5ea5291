"""Test core/models.py on kinds of models whose heads, layers, caches or files differ from Llama's.
"""
import json

import pytest
import torch
import transformers
from conftest import ROOT  # noqa: F401  the repository on sys.path

import train_grpo
from config import BadInput, parse
from core import engine, models, packing
from core.log import read_log
from core.problems import DATE, tokenize

SIZES = dict(vocab_size=24, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
FAMILIES = dict(Llama={}, Mistral=dict(sliding_window=4),
    Gemma2=dict(head_dim=8, final_logit_softcapping=2.0, query_pre_attn_scalar=8),
    Granite=dict(logits_scaling=8.0), Cohere=dict(logit_scale=0.25),
    OPT=dict(ffn_dim=64, word_embed_proj_dim=32),
    GPT2=dict(n_embd=32, n_layer=2, n_head=4, n_positions=64), GPTNeoX={}, Qwen3Next=dict(
        head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"]),
    FalconH1=dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=1,
                  mamba_d_state=8),
    DeepseekV3=dict(num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
                    qk_nope_head_dim=4, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2,
                    n_group=1, topk_group=1, moe_intermediate_size=32, first_k_dense_replace=1),
    Mamba=dict(state_size=8), Bert={})


def tiny_model(family, **changes):
    """Return a causal LM of one family, with random weights so large that logits differ clearly."""
    end = dict(GPT2="LMHeadModel", Bert="LMHeadModel").get(family, "ForCausalLM")
    settings = getattr(transformers, f"{family}Config")(**SIZES | FAMILIES[family] | changes)
    torch.manual_seed(0)
    model = getattr(transformers, family + end)(settings).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(8 if p.ndim > 1 else 1)
    return model


def tiny_tokenizer(**more):
    """Return a tokenizer of 24 words, of which 19 are w0 to w18, without a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = ["<pad>", "<s>", "</s>", "<unk>", "<u>", *(f"w{i}" for i in range(19))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        pad_token="<pad>", **more)


@pytest.fixture
def run(tmp_path):
    """Return train(model, *words), which makes two updates and returns the records of the log.
    generation: the content of generation_config.json."""
    def train(model, *words, generation=None):
        folder, problems, out = tmp_path / "base", tmp_path / "problems.jsonl", tmp_path / "run"
        model.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
        if generation:
            (folder / "generation_config.json").write_text(json.dumps(generation))
        problems.write_text('{"id": 1, "prompt": "w1 w2 w3", "answer": "w3"}\n'
                            '{"id": 2, "prompt": "w3", "answer": "w4"}\n')
        assert train_grpo.main([
            f"--model={folder}", f"--train_set={problems}", f"--val_set={problems}",
            f"--out={out}", "--verifier=exact", "--max_prompt_tokens=8", "--max_new_tokens=8",
            "--B_p=2", "--n=4", "--C=16", "--temperature=1", "--eval_every=0", *words]) == 0
        return read_log(out / "log.jsonl")
    return train


def batch_of(rows=2, length=9, prompt=3):
    torch.manual_seed(1)
    ids = torch.randint(3, 24, (rows, length))
    return ids, torch.full((rows,), prompt), torch.full((rows,), length - prompt)


@pytest.mark.parametrize("micro_logits", [2 ** 27, 24 * 5])
@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "Cohere", "OPT", "Qwen3Next"])
def test_log_probs_are_those_of_the_models_own_logits(family, micro_logits):
    """Log-probs, entropies and gradients equal those by autograd from the logits of the model.
    `micro_logits` makes token_logps compute all logits at once, or those of 5 tokens at a time."""
    model, (ids, start, length), T = tiny_model(family), batch_of(), 0.7
    logits = model(input_ids=ids).logits
    bare = model.get_output_embeddings()(model.base_model(input_ids=ids).last_hidden_state)
    changed = (bare - logits).abs().max() > 0.1  # some models change what the embedding gives
    assert changed == (family in ("Gemma2", "Granite", "Cohere"))
    logp = torch.log_softmax(logits[:, 2:-1] / T, -1)
    expected = logp.gather(-1, ids[:, 3:, None])[..., 0].flatten()
    entropy = -(logp.exp() * logp).sum(-1).flatten()
    weight = torch.linspace(-1, 2, len(expected))
    (expected @ weight + 0.3 * entropy.sum()).backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    cfg = dict(parse([]), temperature=T, micro_logits=micro_logits)
    got, got_entropy = train_grpo.token_logps(model, ids, start, length, cfg)
    (got @ weight + 0.3 * got_entropy.sum()).backward()
    assert torch.allclose(got, expected, atol=1e-5)
    assert torch.allclose(got_entropy, entropy, atol=1e-5)
    # 1e-5 is for parameters whose true gradient is 0
    for name, gradient in wanted.items():
        got_gradient = dict(model.named_parameters())[name].grad
        assert (got_gradient - gradient).norm() <= 1e-4 * gradient.norm() + 1e-5, name


WHY_PADDED = dict(Llama="", Granite="", Cohere="", OPT="", GPT2="", GPTNeoX="",
                  Mistral="not all layers", Gemma2="not all layers", Qwen3Next="its own",
                  FalconH1="its own", DeepseekV3="its own", Mamba="its own")


@pytest.mark.parametrize("family", WHY_PADDED)
def test_rows_are_packed_where_attention_allows_it(family):
    """Packed rows of two lengths have the log-probs and gradients of padded rows."""
    model, (ids, start, _) = tiny_model(family), batch_of()
    why = packing.why_padded(model, "cuda:0", True)
    assert WHY_PADDED[family] in why and bool(WHY_PADDED[family]) == bool(why)
    assert packing.why_padded(model, "cpu", True) and packing.why_padded(model, "cuda", False)
    if why:
        return
    results = []
    for change in (lambda m: None, packing.pack):
        change(model)
        logp, entropy = train_grpo.token_logps(model, ids, start, torch.tensor([6, 2]), parse([]))
        (logp.sum() + entropy.sum()).backward()
        results.append((logp, entropy, *(p.grad for p in model.parameters() if p.grad is not None)))
        model.zero_grad()
    for plain, packed in zip(*results):
        assert (packed - plain).norm() <= 1e-4 * plain.norm() + 1e-5
    model.config.attn_logit_softcapping = 30.0
    assert "soft cap" in packing.why_padded(model, "cuda:0", True)


def test_a_model_whose_log_probs_differ_is_refused(run, monkeypatch, tmp_path):
    """The first update notices it, before the log has a record of an update. BERT is not causal."""
    with pytest.raises(BadInput, match="engine and trainer differ by .* not rounding"):
        run(tiny_model("Bert"))
    logits_of = models.logits_of
    monkeypatch.setattr(models, "logits_of", lambda *given: 2 * logits_of(*given))
    with pytest.raises(BadInput, match="engine and trainer differ by .* not rounding"):
        run(tiny_model("Llama"), "--out=" + str(tmp_path / "other"))


@pytest.mark.parametrize("family, words", [
    ("Granite", []), ("Gemma2", ["--recipe=easy"]), ("Qwen3Next", []), ("FalconH1", []),
    ("Qwen3Next", ["--activation_checkpointing=true"]),
    ("GPT2", ["--algo=ppo", "--activation_checkpointing=true"]), ("GPTNeoX", ["--algo=ppo"])])
def test_families_train_on_what_their_engine_samples(run, monkeypatch, family, words):
    lrs, update = [], train_grpo.update
    monkeypatch.setattr(train_grpo, "update", lambda learner, *rest: lrs.append(
        learner.trained()[-1][2].param_groups[0]["lr"]) or update(learner, *rest))
    steps = [r for r in run(tiny_model(family), *words) if r["type"] == "step"]
    assert len(steps) == 2 and max(r["tis_mean"] for r in steps) < 1e-5
    assert "--algo=ppo" not in words or lrs == pytest.approx([1e-6, 2e-6])  # critic_lr warms up too


def test_a_model_without_a_cache_of_keys_is_refused():
    with pytest.raises(BadInput, match="kind mamba take no cache"):
        engine.HFEngine(tiny_model("Mamba"), None, parse(["--device=cpu"]))


def test_settings_of_generation_that_transformers_does_not_save_are_kept(run, tmp_path):
    given = dict(temperature=0.9, top_p=0.6, length_penalty=2.0, eos_token_id=[2, 7])
    with pytest.raises(ValueError):
        transformers.GenerationConfig(**given).save_pretrained(tmp_path)
    run(tiny_model("Llama"), generation=given)
    for folder in (*(tmp_path / "run/ckpt").glob("step_*"), tmp_path / "run/model"):
        saved = json.loads((folder / "generation_config.json").read_text())
        assert {key: saved.get(key) for key in given} == given
        loaded, _ = models.load_model(folder, "cpu")
        assert loaded.generation_config.temperature == 0.9


def test_buffers_that_files_hold_are_read_and_written(run, tmp_path):
    """The routing bias of DeepSeek V3 is a buffer, not a parameter, and changes the output."""
    model, name = tiny_model("DeepseekV3"), "model.layers.1.mlp.gate.e_score_correction_bias"
    model.get_buffer(name).copy_(torch.tensor([0.0, 1, 2, 3]))
    steps = [r for r in run(model) if r["type"] == "step"]
    assert max(r["tis_mean"] for r in steps) < 1e-5
    for folder in (tmp_path / "base", *(tmp_path / "run/ckpt").glob("*"), tmp_path / "run/model"):
        loaded, _ = models.load_model(folder, "cpu")
        assert loaded.get_buffer(name).tolist() == [0, 1, 2, 3], folder
    bf16 = engine.HFEngine(model, None, dict(parse(["--device=cpu"]), dtype="bf16"))
    bf16.model.get_buffer(name).zero_()
    bf16.load(models.full_weights(model))
    assert bf16.model.get_buffer(name).tolist() == [0, 1, 2, 3]


def test_a_file_that_lacks_a_weight_is_refused(run):
    model = tiny_model("Llama")
    del model.model.layers[1].mlp.down_proj
    with pytest.raises(BadInput, match="lack 1 weights, such as model.layers.1.mlp.down_proj.wei"):
        run(model)
    model = tiny_model("Llama")  # tied in config.json, not in the file
    model.config.tie_word_embeddings = True
    with pytest.raises(BadInput, match="set tie_word_embeddings to false"):
        run(model)


def test_a_rope_that_depends_on_the_batch_is_refused(run, monkeypatch):
    """longrope rotates rows of up to original_max_position_embeddings tokens always alike."""
    monkeypatch.setitem(FAMILIES, "Phi3", dict(rope_scaling=dict(
        rope_type="longrope", short_factor=[1.0] * 4, long_factor=[4.0, 3.0, 2.0, 1.5])))
    with pytest.raises(BadInput, match="the 8 positions of .* before its longrope"):
        run(tiny_model("Phi3", original_max_position_embeddings=8))
    assert run(tiny_model("Phi3", original_max_position_embeddings=16))[-1]["status"] == "budget"


# ---- Tokenizers ----------------------------------------------------------------------------------

@pytest.mark.parametrize("ids, end, template, why", [
    (2, "</s>", None, ""), ([3, 2], "<unk>", None, ""),
    (None, None, None, "neither its tokenizer nor its config.json names"),
    (2, None, "{{ raise_exception('no date') }}", "cannot load it .no date")])
def test_the_end_token_comes_from_the_config(tmp_path, ids, end, template, why):
    """The tokenizer names no end token. The config may name one id, several or none."""
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token, tokenizer.chat_template = None, template
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(dict(model_type="llama", eos_token_id=ids)))
    if end:
        assert models.load_tokenizer(tmp_path).eos_token == end
    else:
        with pytest.raises(BadInput, match=why):
            models.load_tokenizer(tmp_path)


PROBLEMS = [dict(id="1", prompt="w1 w2", answer="w3"),
            dict(id="2", prompt="w1", answer="w3", begin=" w4")]


@pytest.mark.parametrize("form, before", [("$A </s>", []), ("<s> $A </s>", [1]), ("<s> $A", [1]),
                                          ("<s> $A </s> </s>", [1]), ("$A <s>", []),
                                          ("$A", [])])
def test_no_prompt_ends_with_the_end_of_a_text(form, before):
    from tokenizers.processors import TemplateProcessing
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=form, special_tokens=[("<s>", 1), ("</s>", 2)])
    assert tokenize(PROBLEMS, tokenizer) == [[*before, 6, 7], [*before, 6, 9]]


def test_a_template_that_prints_the_date_prints_one_day():
    """The date that templates see is always the same Friday in July."""
    tokenizer = tiny_tokenizer(chat_template=(
        "<u> w{{ strftime_now('%m') | int }} w{{ strftime_now('%w') }} "
        "{{ messages[0]['content'] }}"))
    assert (DATE.month, DATE.isoweekday()) == (7, 5)
    assert tokenize(PROBLEMS[:1], tokenizer) == [[4, 5 + 7, 5 + 5, 6, 7]]


def test_text_outside_the_vocabulary_is_named(capsys):
    tokenize(PROBLEMS, tiny_tokenizer())
    assert capsys.readouterr().err == ""
    tokenize([*PROBLEMS, dict(id="odd", prompt="w1 é", answer="w3")], tiny_tokenizer())
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith("1 of 3 prompts") and "problem odd" in line
    embedded = models.load_tokenizer("data/arithmetic/base")  # has no token for unknown text
    tokenize([dict(id="odd", prompt="1+é=", answer="2")], embedded)
    assert "problem odd" in capsys.readouterr().err
