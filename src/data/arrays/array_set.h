#pragma once
// NumPy's arrays as samples.

#include "data/inputs.h"
#include "data/sample_request.h"

namespace millrace::data {

/// A .npz file, or a folder of .npy (or .npz) files, with inputs called x, images or vectors and answers called y, labels or
/// targets. Parts are x_train, x_valid (or x_val) and x_test, and y likewise; without such names shares of x. Inputs of u8 and 3
/// or 4 dimensions are images [N, height, width] or [N, height, width, channels of 1 to 4]; others become vectors, of which each
/// column is scaled by the training part. Answers of whole numbers are classes, others are predicted as they are.
Result<SampleSet> load_array_set(const SampleRequest& request);

/// As open_inputs(), of such a file or folder: its inputs by part, or the one array that it holds.
Result<std::vector<Inputs>> open_arrays(const Path& path, const Preparation& prepared);

}  // namespace millrace::data
