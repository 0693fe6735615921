#pragma once
// Text in, text out: the text bridge and the cube of trained weights (models/capabilities.h).

#include "models/capabilities.h"

namespace millrace::models {

/// The tokenizer and the widths of the token fields, by which a run that goes on, or is scored, numbers its texts; nothing where
/// the model has no text bridge.
base::Result<data::StoredData> stored_texts(const io::LoadedCheckpoint& checkpoint);

/// Refuses a model without a text bridge, and texts that are empty, wholly unknown or longer than any sentence the bridge has
/// seen. Needs nothing but the checkpoint, unless the nearest target is asked for; data that cannot be loaded then leaves it out,
/// with a warning.
base::Result<TextReport> answer_texts(const TextRequest& request);

}  // namespace millrace::models
