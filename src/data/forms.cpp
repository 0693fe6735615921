#include "data/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "data/folder.h"
#include "data/images/image_set.h"
#include "data/pairs/pairs.h"
#include "data/pictures/pictures.h"
#include "data/text/text_set.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

constexpr FormWords kForms[] = {{Form::unknown, DataKind::samples, "nothing that is known", load_image_set},
                                {Form::idx, DataKind::samples, "images", load_image_set},
                                {Form::pictures, DataKind::samples, "pictures", load_picture_set},
                                {Form::arrays, DataKind::samples, "arrays", load_array_set},
                                {Form::table, DataKind::samples, "a table", load_table_set},
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

/// As form_of(), which knows no single pictures or IDX files; a folder is what the model can read of it.
Form form_of_input(const Path& path, const Preparation& prepared) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path, ignored), images = prepared.shape.size() > 0;
    if (folder ? images && holds_pictures(path) : has_ending(path, kPictureEndings)) return Form::pictures;
    if (!folder && path.filename().string().find("idx3") != std::string::npos) return Form::idx;
    return form_of(path);
}

/// Refuses what a model for such data cannot read.
Status check_form(Form form, const Preparation& prepared, const Path& place) {
    const bool table = !prepared.columns.empty(), images = prepared.shape.size() > 0;
    if (table ? form == Form::table : form == Form::arrays || (images && (form == Form::pictures || form == Form::idx)))
        return base::ok();
    const char* wanted = table    ? "a table (.csv, .tsv)"
                         : images ? "PNG, JPEG, arrays (.npy, .npz) or IDX files"
                                  : "arrays (.npy, .npz)";
    return Error{fmt::format("holds {}; the run was trained on other data: {} would be right", words_of(form).holds, wanted),
                 place.string()};
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

Result<SampleSet> load_sample_set(const SampleRequest& request) {
    const FormWords& form = words_of(form_of(request.path));
    std::error_code ignored;
    if (form.form == Form::unknown && fs::exists(request.path, ignored))
        return Error{
            "holds nothing to train on; a folder for each class with PNG or JPEG pictures, a table (.csv, .tsv), arrays "
            "(.npy, .npz) or IDX files would be right",
            request.path.string()};
    const auto load = form.load != nullptr ? form.load : load_image_set;
    MILLRACE_LET(set, load(request));
    if (request.stored == nullptr) return set;
    if (set.preparation.target.has_value() != request.stored->target.has_value())
        return Error{"has other answers than the training data", request.path.string()};
    if (set.preparation.shape != request.stored->shape)
        return Error{"has images of another shape than the training data", request.path.string()};
    set.preparation = *request.stored;
    return set;
}

Result<std::vector<Inputs>> open_inputs(const std::vector<Path>& paths, const Preparation& prepared) {
    std::vector<Inputs> all;
    std::vector<Path> pictures;
    for (const Path& path : paths) {
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) return Error{"no such file or folder", path.string()};
        const Form form = form_of_input(path, prepared);
        MILLRACE_TRY(check_form(form, prepared, path));
        if (form == Form::pictures) {
            MILLRACE_LET(files, find_files({path}, kPictureEndings, "picture"));
            pictures.insert(pictures.end(), files.begin(), files.end());
        } else {
            const auto open = form == Form::arrays ? open_arrays : form == Form::idx ? open_images : open_table;
            MILLRACE_LET(opened, open(path, prepared));
            if (std::ranges::all_of(opened, [](const Inputs& each) { return each.count == 0; }))
                return Error{"holds no rows", path.string()};
            std::ranges::move(opened, std::back_inserter(all));
        }
    }
    if (!pictures.empty() && !all.empty()) return Error{"pictures and other files need a call each", pictures.front().string()};
    if (pictures.empty()) return all;
    MILLRACE_SET(all.emplace_back(), open_pictures(pictures, prepared));
    return all;
}

}  // namespace millrace::data
