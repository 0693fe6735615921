#pragma once
// Language models write text: a prompt is read token by token, then tokens are drawn, each seeing the keys and values that those
// before it left behind.

#include "models/language_model.h"
#include "models/registry.h"

namespace millrace::models {

/// `make` is the family's: it gives a language model. A window that is full is begun again with the second half of its tokens.
base::Result<PromptReport> go_on(const PromptRequest& request,
                                 base::Result<std::unique_ptr<Model>> (*make)(const base::Recipe&, const data::Fields&));

/// The tokenizer and the length of the windows of a checkpoint.
base::Result<data::StoredData> stored_language(const io::LoadedCheckpoint& checkpoint);

/// A token drawn from logits at a temperature (0: the likeliest), among the `top_k` likeliest (0: all) from `first` on: marks
/// below it are not drawn. `uniform` in [0, 1) decides.
std::int32_t draw_token(const std::vector<double>& logits, double temperature, std::int32_t top_k, std::int32_t first,
                        double uniform);

}  // namespace millrace::models
