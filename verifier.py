r"""verifier.py: turn text that a model wrote into a reward, a number from 0 to 1.

To add a reward, write one function here and one entry in REWARDS. `--verifier=NAME` then uses it in
every script; the name is part of a run's identity. A sweep with it measures difficulty again.

    def short(problem, text, cfg):  # the problem's dict, the model's text, the flat dict
        return 0.1 * ("#" in text) + 0.9 * exact(problem, text, cfg)
    REWARDS["short"] = short

Training uses the rewards unchanged. avg@k, best@k, worst@k and pass rates count a rollout only if
its reward is 1. If the chat template opens <think> at the end of a prompt, `text` begins with it.

    python verifier.py '\frac{1}{2}' 'It is \boxed{0.5}.'    # grade one pair: right

math-verify and reasoning-gym run in processes that can be killed (core/sandbox.py). To grade in
another project, copy verifier.py, core/sandbox.py and core/math_answers.py.
"""
import numbers
import sys
import traceback

from core.sandbox import ERROR, LIBRARIES, TIMEOUT, BadInput, check

# ---- Rewards -------------------------------------------------------------------------------------

def exact(problem, text, cfg):
    """Return 1.0 if the text after the last '#' is the problem's answer, else 0.0."""
    return float("#" in text and text.rpartition("#")[2].strip() == problem["answer"].strip())


def math_reward(problem, text, cfg):
    r"""Return 1.0 if math-verify finds the last \boxed{} equal to the answer, else 0.0. For rewards
    that you write; `grade` grades whole batches in parallel."""
    return max(0.0, *check("math", [(problem, text)], cfg))


def reasoning_gym_reward(problem, text, cfg):
    """Return the score, from 0 to 1, of the reasoning-gym verifier for the problem's task."""
    return max(0.0, *check("reasoning_gym", [(problem, text)], cfg))


REWARDS = dict(math=math_reward, exact=exact, reasoning_gym=reasoning_gym_reward)


# ---- Grading -------------------------------------------------------------------------------------

def grade(problems, rollouts, tokenizer, cfg):
    """Return the rewards of engine.generate's n rollouts for P problems, (P, n) float32, and
    {"verifier_timeouts", "verifier_errors"}: how many are 0 because a library failed. Raise
    BadInput if a reward is not a number from 0 to 1."""
    import torch
    # special tokens are left out, except those that mark the thinking
    thinking = {i for token, i in tokenizer.added_tokens_encoder.items()
                if token in ("<think>", "</think>")}
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    drop = special.union(tokenizer.all_special_ids) - thinking
    # row by row, because the padded matrix as a list takes 8 times as much memory
    rows = zip(rollouts["tokens"], rollouts["length"].tolist())
    texts = tokenizer.batch_decode([[i for i in ids[:k].tolist() if i not in drop]
                                    for ids, k in rows])
    n = len(texts) // len(problems)
    pairs = [(problems[i // n], text) for i, text in enumerate(texts)]  # n per problem
    if opens_thinking(tokenizer):
        pairs = [(p, "<think>" * ("</think>" not in p.get("begin", "")) + text)
                 for p, text in pairs]
    if cfg["verifier"] in LIBRARIES:
        verdicts = check(cfg["verifier"], pairs, cfg)  # the workers grade the batch in parallel
    else:
        reward, verdicts = REWARDS[cfg["verifier"]], []
        for problem, text in pairs:
            try:
                value = reward(problem, text, cfg)
            except BadInput:
                raise
            except Exception as e:  # a user's function may raise anything
                at = traceback.extract_tb(e.__traceback__)[-1]
                raise BadInput(f"--verifier={cfg['verifier']}: failed at problem {problem['id']}, "
                               f"{at.filename}:{at.lineno}: {type(e).__name__}: {e}") from None
            if not isinstance(value, numbers.Real) or not 0 <= value <= 1:  # NaN fails both
                raise BadInput(f"--verifier={cfg['verifier']}: gave problem {problem['id']} the "
                               f"reward {value!r}; it must be a number from 0 to 1")
            verdicts.append(float(value))
    rewards = torch.tensor(verdicts).clamp(min=0).reshape(len(problems), n)
    return rewards, dict(verifier_timeouts=verdicts.count(TIMEOUT),
                         verifier_errors=verdicts.count(ERROR))


def solved(rewards):
    """Return a bool tensor: True if a rollout has reward 1."""
    return rewards == 1


def opens_thinking(tokenizer):
    """Return whether the chat template ends a prompt inside an opened <think> block."""
    if not tokenizer.chat_template:
        return False
    prompt = tokenizer.apply_chat_template([dict(role="user", content="?")], tokenize=False,
                                         add_generation_prompt=True)
    return prompt.rfind("<think>") > prompt.rfind("</think>")


def check_math(pairs, cfg=dict(verify_s=3.0, verify_bytes=1024)):
    """Grade [(gold, text that a model wrote), ...] as --verifier=math does.

    Return "right", "wrong", "timeout" or "error" for each pair. cfg: see core.sandbox.check.
    """
    verdicts = check("math", [(dict(answer=gold), text) for gold, text in pairs], cfg)
    return [{1.0: "right", 0.0: "wrong", TIMEOUT: "timeout", ERROR: "error"}[v] for v in verdicts]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python verifier.py GOLD TEXT    (the answer is in TEXT's last \\boxed{})")
    print(*check_math([tuple(sys.argv[1:])]))
