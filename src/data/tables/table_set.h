#pragma once
// Tables as samples: one column is the answer, the others become the numbers of a vector.

#include "data/inputs.h"
#include "data/sample_request.h"

namespace millrace::data {

/// A file, or a folder with train.csv (or .tsv) and, if they are there, valid.csv and test.csv. Columns of numbers are scaled by
/// the training part and a missing number becomes their mean; any other column becomes a 0 or 1 for each of its up to 255 most
/// frequent words of the training part and one for all others. Notes say how many cells were missing.
Result<SampleSet> load_table_set(const SampleRequest& request);

/// As open_inputs(), of such a file or folder: the rows of all files.
Result<Inputs> open_table(const Path& path, const Preparation& prepared);

}  // namespace millrace::data
