#pragma once
// What lies at a path: which reader takes it.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sample_set.h"

namespace millrace::data {

enum class Form : std::uint8_t { unknown, idx, pictures, arrays, table, text, pairs, recordings };

struct FormWords {
    Form form = Form::unknown;
    DataKind kind = DataKind::samples;
    const char* holds = "";                                             ///< for people: "a table"
    Result<SampleSet> (*load)(const SampleRequest& request) = nullptr;  ///< of samples
};

/// By names alone: the endings of a file, or what a folder holds.
Form form_of(const Path& path);
const FormWords& words_of(Form form);
std::span<const FormWords> forms();

/// A name without ".gz", in lower case; its ending.
std::string unpacked_ending(const Path& path);

/// What lies at `paths`, in that order: pictures (folders of them at any depth by their path, single files), tables, arrays or
/// IDX files. What else lies there, such as answers, is not looked at. Refuses what is of another kind or shape than `prepared`
/// and what holds nothing.
Result<std::vector<Inputs>> open_inputs(const std::vector<Path>& paths, const Preparation& prepared);

/// The samples at request.path, whichever form they have. Refuses what does not fit the checkpoint.
Result<SampleSet> load_sample_set(const SampleRequest& request);

/// NumPy's arrays: a .npz file, or a folder of .npy (or .npz) files, with inputs called x, images or vectors and answers called
/// y, labels or targets. Parts are x_train, x_valid (or x_val) and x_test, and y likewise; without such names shares of x. Inputs
/// of u8 and 3 or 4 dimensions are images [N, height, width] or [N, height, width, channels of 1 to 4]; others become vectors, of
/// which each column is scaled by the training part. Answers of whole numbers are classes, others are predicted as they are.
Result<SampleSet> load_array_set(const SampleRequest& request);

/// As open_inputs(), of such a file or folder: its inputs by part, or the one array that it holds.
Result<std::vector<Inputs>> open_arrays(const Path& path, const Preparation& prepared);

/// A table, of which one column is the answer and the others become the numbers of a vector: a file, or a folder with train.csv
/// (or .tsv) and, if they are there, valid.csv and test.csv. Columns of numbers are scaled by the training part and a missing
/// number becomes their mean; any other column becomes a 0 or 1 for each of its up to 255 most frequent words of the training
/// part and one for all others. Notes say how many cells were missing.
Result<SampleSet> load_table_set(const SampleRequest& request);

/// As open_inputs(), of such a file or folder: the rows of all files.
Result<std::vector<Inputs>> open_table(const Path& path, const Preparation& prepared);

/// "", "NA", "N/A", "NaN", "null", "None" and "?", in any case.
bool is_missing(std::string_view cell);
/// A finite decimal number, white space around it allowed; nothing else.
std::optional<double> number_of(std::string_view cell);

/// Sets answers and what the preparation says of them from a cell for each sample. Numbers make a regression and anything else
/// classes, unless request.task or the checkpoint says otherwise. Samples without an answer leave the parts, and a note says how
/// many. Refuses a regression of what is no number, fewer than two classes and classes that the checkpoint does not know.
Status set_answers(SampleSet& set, const std::string& name, const std::vector<std::string_view>& cells,
                   const SampleRequest& request);

/// Folders of pictures of request.size (width x height, "48x32"), or of their own where all have one size of at most 16,384
/// pixels, else of 64 x 64; grey or in colour as the files are, or as request.colour says. Files that cannot be read are named
/// and left out; more than 1 % of them refuse the set. Where a table beside the pictures has the labels, its first column names
/// the files and request.target, or else the second, the answers.
Result<SampleSet> load_picture_set(const SampleRequest& request);

/// As open_inputs(), of files.
Result<Inputs> open_pictures(const std::vector<Path>& paths, const Preparation& prepared);

/// "48x32" as 48 wide and 32 high.
Result<std::pair<std::int32_t, std::int32_t>> parse_size(const std::string& text);

/// A folder with the four IDX files of an MNIST-like data set and, beside them, an optional dataset.json
/// {"name": "garments", "mean": 0.21, "std": 0.27, "classes": 10, "class_names": ["T-shirt/top", ...]} (each key optional).
/// Without it the folder has the name, the labels say how many classes there are, and mnist, fashion-mnist and garments have
/// their usual constants or names. Images to train on come first; the checksum is of all pixels and labels. Errors name the file
/// and, for a label, its index and value.
Result<SampleSet> load_image_set(const SampleRequest& request);

/// As open_inputs(), of an IDX file or a folder: those for training first. Labels are not looked at.
Result<std::vector<Inputs>> open_images(const Path& path, const Preparation& prepared);

}  // namespace millrace::data
