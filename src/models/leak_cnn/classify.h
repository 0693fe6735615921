#pragma once
// A trained detector's decision about each sound file of a folder.

#include "models/capabilities.h"

namespace millrace::models {

inline const std::vector<std::string> kClassifyColumns{
    "filepath", "is_leak", "leak_conf_mean", "long_pos_frac", "per_long_probs_json", "notes"};

/// One row for each WAV and FLAC file at any depth below `request.in`, by name; a file that cannot be read has its error as note.
base::Result<ClassifyReport> classify_sounds(const ClassifyRequest& request);

}  // namespace millrace::models
