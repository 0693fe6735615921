#pragma once
// What a checkpoint knows of the sentences its model reads and writes: the tokenizer and how long they may be. A run that goes
// on, or is scored, takes these and not what the data at hand would give.

#include "base/result.h"
#include "data/pairs/pair_tokens.h"
#include "io/checkpoint.h"

namespace millrace::train {

/// Without a tokenizer where the model has no text bridge.
base::Result<data::SentenceShape> stored_sentences(const io::LoadedCheckpoint& checkpoint);

}  // namespace millrace::train
