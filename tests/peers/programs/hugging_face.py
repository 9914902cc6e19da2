"""transformers' XLNet."""

import torch
import transformers

SIZES = {"vocab_size": 90, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 20, "initializer_range": 0.4}


@torch.no_grad()
def logits(model, batch):
    ids, mask, segments = (torch.tensor(batch[name]) for name in ("ids", "mask", "segments"))
    answer = model.eval()(input_ids=ids, attention_mask=mask, token_type_ids=segments)
    return answer[0].float().tolist()


def batched(batches):
    """Returns the answers to each batch, of an encoder and of classifiers."""
    torch.manual_seed(0)
    models = {"vectors": transformers.XLNetModel(transformers.XLNetConfig(**SIZES))}
    for summary in ("last", "first", "mean"):
        config = transformers.XLNetConfig(**SIZES, summary_type=summary)
        models[f"classifier, `summary_type={summary}`"] = transformers.XLNetForSequenceClassification(config)
    return {name: [logits(model, batch) for batch in batches] for name, model in models.items()}


def write(folder, kind, batch, dtype="float32"):
    """Saves a model with random weights and returns its answers."""
    torch.manual_seed(0)
    model = getattr(transformers, kind)(transformers.XLNetConfig(**SIZES))
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return logits(model.float(), batch)


def read(folder, batch):
    return logits(transformers.AutoModelForSequenceClassification.from_pretrained(folder), batch)


def tokens(folder, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(texts, add_special_tokens=False)["input_ids"]
