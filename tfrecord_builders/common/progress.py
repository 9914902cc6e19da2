"""The progress of a build over all workers, as a bar on stderr."""

import contextlib
import time

from xlnet_tf.progress_bar import ProgressBar


class BuildProgress(contextlib.AbstractContextManager):
    """A bar with the processed part of the corpus, the rate and the time left for all of it.

    The rate is the mean over what this run has built: jobs end in bursts and out of order, and kept shards of
    an earlier run take hardly any time. `total` is the bytes of the corpus' files.
    """

    def __init__(self, total: int, title: str, enabled: bool):
        self._bar = ProgressBar(
            total=total, unit="B", unit_scale=True, desc=title, disable=not enabled, smoothing=0
        )
        self._enabled = enabled
        self._records = self._kept = self._text_bytes = self._source_bytes = 0

    def __exit__(self, *_) -> None:
        self._bar.close()

    def add(self, source_bytes: int, text_bytes: int = 0, records: int = 0, kept: bool = False) -> None:
        """Notes that a job has ended, which read source_bytes of the stored (perhaps compressed) files.

        `kept` means that an earlier run had built all of it.
        """
        if not self._enabled:
            return
        self._records += records
        if kept:
            self._kept += records
            self._bar.initial += source_bytes  # no part of the rate
            if not self._source_bytes:
                self._bar.start_t = time.time()  # nor is the time until building begins
        else:
            self._source_bytes += source_bytes
            self._text_bytes += text_bytes
        shown = {"records": f"{self._records:,}"} if self._records else {}
        if self._kept:
            shown["kept"] = f"{self._kept:,}"
        elapsed = time.time() - self._bar.start_t
        if self._text_bytes > 1.1 * self._source_bytes and elapsed > 0:  # compressed
            shown["text"] = f"{self._text_bytes / elapsed / 1e6:.2f}MB/s"
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(source_bytes)
