#pragma once
// What the family offers beside training (models/capabilities.h); its entry in the registry names it.

#include <memory>

#include "models/capabilities.h"

namespace millrace::models {

/// Of a sample: its surface, and the paths of its flows. `model` is an EnergyFlow and outlives the pictures.
std::unique_ptr<Pictures> flow_pictures(Model& model);

// Text in, text out: the text bridge and the cube of trained weights.
/// The tokenizer and the widths of the token fields, by which a run that goes on, or is scored, numbers its texts; nothing where
/// the model has no text bridge.
base::Result<data::StoredData> stored_texts(const io::LoadedCheckpoint& checkpoint);

/// Refuses a model without a text bridge, and texts that are empty, wholly unknown or longer than any sentence the bridge has
/// seen. Needs nothing but the checkpoint, unless the nearest target is asked for; data that cannot be loaded then leaves it out,
/// with a warning.
base::Result<TextReport> answer_texts(const TextRequest& request);

}  // namespace millrace::models
