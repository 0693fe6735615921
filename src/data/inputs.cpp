#include "data/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "data/arrays/array_set.h"
#include "data/forms.h"
#include "data/images/image_set.h"
#include "data/pictures/find_pictures.h"
#include "data/pictures/picture_set.h"
#include "data/tables/table_set.h"

namespace millrace::data {
namespace {

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

Result<std::vector<Inputs>> open_form(Form form, const Path& path, const Preparation& prepared) {
    if (form == Form::arrays) return open_arrays(path, prepared);
    if (form == Form::idx) return open_images(path, prepared);
    MILLRACE_LET(table, open_table(path, prepared));
    return std::vector<Inputs>{std::move(table)};
}

}  // namespace

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
            MILLRACE_LET(opened, open_form(form, path, prepared));
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
