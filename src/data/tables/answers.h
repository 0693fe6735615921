#pragma once
// What a column of text says about the answers of samples: classes or numbers.

#include <optional>
#include <string_view>
#include <vector>

#include "data/sample_request.h"

namespace millrace::data {

/// "", "NA", "N/A", "NaN", "null", "None" and "?", in any case.
bool is_missing(std::string_view cell);
/// A finite decimal number, white space around it allowed; nothing else.
std::optional<double> number_of(std::string_view cell);

/// Sets answers and what the preparation says of them from a cell for each sample. Numbers make a regression and anything else
/// classes, unless request.task or the checkpoint says otherwise. Samples without an answer leave the parts, and a note says how
/// many. Refuses a regression of what is no number, fewer than two classes and classes that the checkpoint does not know.
Status set_answers(SampleSet& set, const std::string& name, const std::vector<std::string_view>& cells,
                   const SampleRequest& request);

}  // namespace millrace::data
