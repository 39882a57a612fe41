"""Training the same architecture, built from `torch.nn.Transformer`."""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.training.peers.steps import steps


class TorchTransformer(nn.Module):
    """The encoder-decoder of 2017, one embedding."""

    def __init__(self, sizes, rate):
        super().__init__()
        width, positions = sizes["width"], sizes["positions"]
        self.table = nn.Embedding(sizes["vocab"], width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.dropout = nn.Dropout(rate)
        self.body = nn.Transformer(
            width,
            sizes["heads"],
            sizes["layers"],
            sizes["layers"],
            sizes["dff"],
            rate,
            batch_first=True,
            layer_norm_eps=1e-6,
        )
        angles = torch.arange(positions)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        codes = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        self.register_buffer("codes", codes)

    def embed(self, ids):
        """Scaled embeddings with their positions."""
        x = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(x + self.codes[: ids.shape[1]])

    def encode(self, source):
        """Source ids to the encoder's output."""
        return self.body.encoder(self.embed(source), src_key_padding_mask=source == 0)

    def decode(self, target, memory, source):
        """The decoder's output."""
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device
        )
        return self.body.decoder(
            self.embed(target),
            memory,
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_key_padding_mask=source == 0,
        )

    def logits(self, x):
        """Scores of the vocabulary."""
        return F.linear(x, self.table.weight)


def trainer(sizes, rate):
    """A function that trains on batches and returns their mean loss."""
    model = TorchTransformer(sizes, rate).train()
    optimizer = torch.optim.Adam(model.parameters(), 5e-4, (0.9, 0.98), 1e-9)

    def epoch(batches):
        losses = []
        for (source, target_in), target_out in batches:
            source, target_in = torch.from_numpy(source).long(), torch.from_numpy(target_in).long()
            logits = model.logits(model.decode(target_in, model.encode(source), source))
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                torch.from_numpy(target_out).long().flatten(),
                ignore_index=0,
                label_smoothing=0.1,
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    return epoch


def variants(case, arrays):
    """Training steps."""
    return steps("torch.nn.Transformer", trainer, case, arrays)
