#include "data/forms.h"

#include <algorithm>

#include "data/images/image_set.h"
#include "data/pairs/pairs.h"
#include "data/pictures/find_pictures.h"
#include "data/recordings/files.h"
#include "data/text/text_set.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

constexpr FormWords kForms[] = {{Form::unknown, DataKind::samples, "nothing that is known"},
                                {Form::idx, DataKind::samples, "images"},
                                {Form::pictures, DataKind::samples, "pictures"},
                                {Form::arrays, DataKind::samples, "arrays"},
                                {Form::table, DataKind::samples, "a table"},
                                {Form::text, DataKind::text, "text"},
                                {Form::pairs, DataKind::pairs, "pairs of sentences"},
                                {Form::recordings, DataKind::recordings, "recordings"}};

Form form_of_file(const Path& path) {
    const std::string ending = unpacked_ending(path);
    if (ending == ".csv" || ending == ".tsv") return Form::table;
    if (ending == ".npy" || ending == ".npz") return Form::arrays;
    return ending == ".txt" ? Form::text : Form::unknown;
}

bool holds(const Path& folder, const std::string& name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored) || fs::exists(folder / (name + ".gz"), ignored);
}

}  // namespace

std::string unpacked_ending(const Path& path) {
    Path name = path.filename();
    if (name.extension() == ".gz") name = name.stem();
    std::string ending = name.extension().string();
    std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return ending;
}

Form form_of(const Path& path) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return form_of_file(path);
    const auto any = [&](auto... names) { return (holds(path, names) || ...); };
    if (any(kTrainImages, kTrainLabels, kTestImages, kTestLabels)) return Form::idx;
    if (any(kPairVectors)) return Form::pairs;
    if (any(kTextFiles[0], kTextFiles[1], kTextFiles[2])) return Form::text;
    if (any("train.csv", "train.tsv")) return Form::table;
    if (holds_pictures(path)) return Form::pictures;
    for (fs::directory_iterator at(path, ignored), end; !ignored && at != end; at.increment(ignored))
        if (form_of_file(at->path()) == Form::arrays) return Form::arrays;
    return Form::unknown;
}

const FormWords& words_of(Form form) { return *std::ranges::find(kForms, form, &FormWords::form); }

std::span<const FormWords> forms() { return kForms; }

}  // namespace millrace::data
