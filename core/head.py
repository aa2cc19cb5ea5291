"""core/head.py: log-probs and entropies from logits, with their gradient in closed form.

    logp, entropy = TokenLogps.apply(logits, token, temperature)

Autograd would keep three tensors as large as the logits for the backward pass; this keeps one. To
copy this file into another project, copy core/head.py alone. Needs torch.
"""
import torch


class TokenLogps(torch.autograd.Function):
    """Log-probs (N,) of the tokens (N,) and entropies (N,) of softmax(logits / temperature).

    logits (N, V), of any dtype; the results are in fp32.
    """

    @staticmethod
    def forward(ctx, logits, token, temperature):
        logp = torch.log_softmax(logits.float() / temperature, -1)
        entropy = -(logp.exp() * logp).sum(-1)
        ctx.save_for_backward(logp, entropy, token)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        return logp.gather(-1, token[:, None])[:, 0], entropy

    @staticmethod
    def backward(ctx, of_logp, of_entropy):
        """With z = logits / temperature, d logp_k / d z = 1_k - p and d H / d z = -p (logp + H)."""
        logp, entropy, token = ctx.saved_tensors
        grad = (logp + entropy[:, None]).mul_(of_entropy[:, None]).add_(of_logp[:, None])
        grad.mul_(logp.exp()).neg_()
        grad.scatter_add_(-1, token[:, None], of_logp[:, None])
        return grad.div_(ctx.temperature).to(ctx.dtype), None, None
