"""Pieces to copy into another project run in an empty folder with what their docstrings name.

The sentence "Needs ..." of a docstring lists functions of the same file, other files of the
repository and packages. A piece gets these and nothing else.
"""
import ast
import re
import shutil
import sys

import pytest
from conftest import ROOT, capture


def needs(node):
    """Return the words after "Needs" or "another project, copy" in a docstring."""
    sentence = re.search(r"(?:\bNeeds|another project,\s+copy) (.*?)\.(?:\s|$)",
                         ast.get_docstring(node) or "", re.S)
    return re.findall(r"[\w/.]*\w", re.sub(r"\band\b", " ", sentence[1])) if sentence else []


def lift(file, names):
    """Return the source of functions of a file, with all that their docstrings name."""
    text = (ROOT / file).read_text()
    nodes = {node.name: node for node in ast.parse(text).body
             if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    todo, parts, packages = list(names), {}, set()
    while todo:
        name = todo.pop()
        if name not in nodes:
            packages.add(name)
        elif name not in parts:
            parts[name] = ast.get_source_segment(text, nodes[name])
            todo += needs(nodes[name])
    assert packages <= {"torch", "transformers", "random"}, packages
    return "\n\n\n".join([f"import {name}" for name in sorted(packages)] + list(parts.values()))


def run_alone(folder, *words):
    """Run python in `folder`, without the repository, and return its output."""
    done = capture([sys.executable, *words], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Every global name of the functions is in the piece, or is one of Python's
COMPLETE = """
import builtins, dis, types
import torch
import piece
from piece import *
known = vars(piece) | vars(builtins)
for name, f in vars(piece).items():
    for line in dis.get_instructions(f) if isinstance(f, types.FunctionType) else ():
        assert line.opname != "LOAD_GLOBAL" or line.argval in known, (name, line.argval)
"""
MODEL = """
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=11, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, initializer_range=0.5)).eval()
"""
USES = [
    ("train_grpo.py", ["advantages", "policy_loss"], """
A = advantages(torch.tensor([[1.0, 0.0], [0.7, 0.7]]))
assert torch.allclose(A, torch.tensor([[0.7071, -0.7071], [0, 0]]), atol=1e-4), A
logp = torch.tensor([-1.0, -2.0], requires_grad=True)
policy_loss("grpo", logp, logp.detach(), torch.ones(2), A[0], 0.2, 0.2).sum().backward()
assert torch.allclose(logp.grad, -A[0])
"""),
    ("core/engine.py", ["sample_tokens", "decode"], MODEL + """
ids, mask = torch.tensor([[0, 3, 4], [5, 6, 7]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
tokens, logps, length, stopped = decode(
    model, ids, mask, torch.rand(4, 5), torch.tensor([1]), 0.6, 1.0)
with torch.no_grad():
    whole = model(input_ids=torch.cat([ids[1:], tokens[3:, :length[3]]], 1)).logits[0, 2:-1]
expected = torch.log_softmax(whole / 0.6, -1).gather(1, tokens[3, :length[3], None])[:, 0]
assert torch.allclose(logps[3, :length[3]], expected, atol=1e-4)
assert stopped.tolist() == [1 in row for row in tokens.tolist()]
"""),
]


@pytest.mark.parametrize("file, names, code", USES, ids=lambda value: str(value)[:40])
def test_functions_alone(tmp_path, file, names, code):
    """Functions work with only the functions and packages that their docstrings name."""
    (tmp_path / "piece.py").write_text(lift(file, names))
    (tmp_path / "use.py").write_text(COMPLETE + code)
    run_alone(tmp_path, "use.py")


def copy_with_needs(file, folder):
    """Copy a script and the files that its docstring names to an empty folder."""
    names = needs(ast.parse((ROOT / file).read_text()))
    files = [file] + [name for name in names if name.endswith(".py")]
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return files


def test_the_grader_alone(tmp_path):
    """verifier.py grades a pair, and an answer that never ends counts as a timeout."""
    files = copy_with_needs("verifier.py", tmp_path)
    assert "config.py" not in files
    for text, verdict in ((r"\boxed{0.5}", "right"), (r"\boxed{0.6}", "wrong"), ("0.5", "wrong")):
        assert run_alone(tmp_path, "verifier.py", r"\frac{1}{2}", text) == f"{verdict}\n"
    assert capture([sys.executable, "verifier.py"], tmp_path).returncode == 1
    code = r"""import verifier
pairs = [("2", rf"\boxed{{{text}}}") for text in ("1+1", "3", "1" * 2000, "9^{9^{9^{9}}}!")]
print(*verifier.check_math(pairs, dict(verify_s=0.5, verify_bytes=1024)))"""
    *verdicts, endless = run_alone(tmp_path, "-c", code).split()
    assert verdicts == ["right", "wrong", "error"] and endless != "right"


def test_the_packed_pass_alone(tmp_path):
    """core/packing.py and core/head.py give log-probs and gradients of padded rows."""
    assert copy_with_needs("core/packing.py", tmp_path) == ["core/packing.py"] * 2
    assert copy_with_needs("core/head.py", tmp_path) == ["core/head.py"] * 2
    run_alone(tmp_path, "-c", "import torch" + MODEL + """
from core.head import TokenLogps
from core.packing import pack, packed_states
ids, length = torch.randint(11, (3, 7)), torch.tensor([7, 2, 5])
inside = torch.arange(7) < length[:, None]
states = model.model(input_ids=ids, attention_mask=inside.long()).last_hidden_state[inside]
token = ids[inside]
padded = torch.log_softmax(model.lm_head(states) / 0.6, -1).gather(1, token[:, None])[:, 0]
pack(model)
packed, _ = TokenLogps.apply(model.lm_head(packed_states(model, ids, length)), token, 0.6)
assert torch.allclose(packed, padded, atol=1e-4)
for one, two in zip(*[torch.autograd.grad(logp.sum(), list(model.parameters()))
                      for logp in (packed, padded)]):
    assert torch.allclose(one, two, atol=1e-3), (one - two).abs().max()
""")


def test_the_law_alone(tmp_path):
    """fit_sigmoid.py fits the law to points of a CSV file."""
    shutil.copy(ROOT / "fit_sigmoid.py", tmp_path)
    points = "C,n\n" + "".join(f"{4 ** i},{2 ** min(i, 6)}\n" for i in range(2, 12))
    (tmp_path / "mine.csv").write_text(points)
    out = run_alone(tmp_path, "fit_sigmoid.py", "--points=mine.csv")
    assert "plateau" in out and "figure" not in out, out
