"""XLNet's special symbols and their ids, the same in every tokenizer and checkpoint."""

from typing import Final

from xlnet_tf.errors import UserError

UNK_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
CLS_ID: Final = 3
SEP_ID: Final = 4
PAD_ID: Final = 5
MASK_ID: Final = 6
EOD_ID: Final = 7
EOP_ID: Final = 8

# The list index is the id.
SYMBOLS: Final = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
IDS: Final = {symbol: index for index, symbol in enumerate(SYMBOLS)}


def check_special_symbols(processor, source: str) -> None:
    """Checks that XLNet's special symbols have their fixed ids, and that text can spell only `<eop>`."""
    wrong = []
    for expected, symbol in enumerate(SYMBOLS):
        piece_id = processor.piece_to_id(symbol)
        if processor.id_to_piece(piece_id) != symbol:
            wrong.append(f"{symbol} is missing (expected id {expected})")
        elif piece_id != expected:
            wrong.append(f"{symbol} has id {piece_id}, expected {expected}")
    if not wrong:
        for expected in (CLS_ID, SEP_ID, PAD_ID, MASK_ID, EOD_ID):
            if not processor.is_control(expected):
                wrong.append(f"{SYMBOLS[expected]} is not a control symbol, so text could contain it")
        if processor.is_control(EOP_ID):
            wrong.append(f"{SYMBOLS[EOP_ID]} is a control symbol, so a corpus cannot mark paragraphs by it")
    if wrong:
        raise UserError(
            f"{source} is not an XLNet tokenizer: {'; '.join(wrong)}. Train one with `xlnet-tf "
            "train-tokenizer`, which fixes the special symbols and their ids."
        )
