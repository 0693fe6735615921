#pragma once
// Folders of pictures as samples.

#include "data/inputs.h"
#include "data/sample_request.h"

namespace millrace::data {

/// Pictures of request.size (width x height, "48x32"), or of their own where all have one size of at most 16,384 pixels, else of
/// 64 x 64; grey or in colour as the files are, or as request.colour says. Files that cannot be read are named and left out; more
/// than 1 % of them refuse the set. Where a table beside the pictures has the labels, its first column names the files and
/// request.target, or else the second, the answers.
Result<SampleSet> load_picture_set(const SampleRequest& request);

/// As open_inputs(), of files.
Result<Inputs> open_pictures(const std::vector<Path>& paths, const Preparation& prepared);

/// "48x32" as 48 wide and 32 high.
Result<std::pair<std::int32_t, std::int32_t>> parse_size(const std::string& text);

}  // namespace millrace::data
