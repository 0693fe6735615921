#include "data/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "data/forms.h"
#include "data/load.h"
#include "data/text/text_set.h"
#include "io/picture_file.h"
#include "io/table_file.h"

namespace millrace::data {
namespace {

constexpr std::size_t kSheetColumns = 12, kMostSheetRows = 20, kMostListed = 50;
constexpr std::uint32_t kSheetGap = 2;

std::string counted(std::size_t number) { return base::print_count(number); }

/// The class's name, or its number where it has none.
std::string class_text(const Preparation& prepared, std::size_t label) {
    return prepared.class_names.empty() ? fmt::format("class {}", label) : prepared.class_names[label];
}

std::string classes_text(const SampleSet& set) {
    const auto classes = static_cast<std::size_t>(set.preparation.classes);
    std::array<std::vector<std::int64_t>, kPartCount> counts;
    for (const Part part : kAllParts) counts[index_of(part)] = set.class_counts(part);
    const auto number = [&](std::size_t part, std::size_t label) {
        return counted(static_cast<std::size_t>(counts[part][label]));
    };
    std::size_t width = std::string_view("class").size();
    for (std::size_t label = 0; label < std::min(classes, kMostListed); ++label)
        width = std::max(width, class_text(set.preparation, label).size());
    std::string text = fmt::format("{:{}} {:>10} {:>10} {:>10}\n", "class", width, "train", "validation", "test");
    for (std::size_t label = 0; label < std::min(classes, kMostListed); ++label)
        text += fmt::format("{:{}} {:>10} {:>10} {:>10}\n", class_text(set.preparation, label), width, number(0, label),
                            number(1, label), number(2, label));
    return classes > kMostListed ? text + fmt::format("and {} more classes\n", classes - kMostListed) : text;
}

std::string inputs_text(const SampleSet& set) {
    const Preparation& prepared = set.preparation;
    const Shape& shape = prepared.shape;
    if (shape.size() > 0)
        return fmt::format("image: {} wide, {} high, {}; mean {:.3f}, deviation {:.3f}\n", shape.width, shape.height,
                           shape.channels == 1   ? "grey"
                           : shape.channels == 3 ? "colour"
                                                 : fmt::format("{} channels", shape.channels),
                           fmt::join(prepared.mean, " "), fmt::join(prepared.deviation, " "));
    std::string text = fmt::format("vector: {} numbers\n", set.width);
    for (std::size_t i = 0; i < std::min(prepared.columns.size(), kMostListed); ++i) {
        const Column& column = prepared.columns[i];
        text += column.category
                    ? fmt::format("  {}: one of {} words\n", column.name, column.words.size())
                    : fmt::format("  {}: a number, mean {:.4g}, deviation {:.4g}\n", column.name, column.mean, column.deviation);
    }
    if (prepared.columns.size() > kMostListed) text += fmt::format("  and {} more\n", prepared.columns.size() - kMostListed);
    return text;
}

/// Training samples as rows of small pictures, by class where there are classes.
Result<io::Picture> sheet_of(const SampleSet& set) {
    std::vector<std::vector<std::int32_t>> rows(set.classifies() ? static_cast<std::size_t>(set.preparation.classes) : 1);
    for (const std::int32_t sample : set.part(Part::train)) {
        auto& row = rows[set.classifies() ? static_cast<std::size_t>(set.labels[static_cast<std::size_t>(sample)]) : 0];
        if (row.size() < kSheetColumns) row.push_back(sample);
    }
    rows.resize(std::min(rows.size(), kMostSheetRows));
    const Shape& shape = set.preparation.shape;
    const auto height = static_cast<std::uint32_t>(shape.height), width = static_cast<std::uint32_t>(shape.width),
               from = static_cast<std::uint32_t>(shape.channels), channels = from == 3 ? 3u : 1u;
    io::Picture sheet{static_cast<std::uint32_t>(kSheetColumns) * (width + kSheetGap) + kSheetGap,
                      static_cast<std::uint32_t>(rows.size()) * (height + kSheetGap) + kSheetGap,
                      channels,
                      {}};
    sheet.pixels.assign(std::size_t{sheet.width} * sheet.height * channels, 255);
    std::vector<std::uint8_t> image(set.input_bytes());
    for (std::size_t row = 0; row < rows.size(); ++row)
        for (std::size_t column = 0; column < rows[row].size(); ++column) {
            MILLRACE_TRY(set.read(rows[row][column], std::as_writable_bytes(std::span(image))));
            const std::size_t top = row * (height + kSheetGap) + kSheetGap, left = column * (width + kSheetGap) + kSheetGap;
            for (std::size_t y = 0; y < height; ++y)
                for (std::size_t x = 0; x < width; ++x)
                    for (std::size_t c = 0; c < channels; ++c)
                        sheet.pixels[((top + y) * sheet.width + left + x) * channels + c] = image[(y * width + x) * from + c];
        }
    return sheet;
}

/// A line for each sample of a part: its number in the order of the data, the part and the answer.
std::string list_of(const SampleSet& set) {
    std::vector<std::pair<std::int32_t, Part>> samples;
    for (const Part part : kAllParts)
        for (const std::int32_t sample : set.part(part)) samples.emplace_back(sample, part);
    std::ranges::sort(samples);
    const Target target = set.preparation.target.value_or(Target{});
    std::string text = io::csv_line({"sample", "part", "answer"});
    for (const auto& [sample, part] : samples) {
        const auto at = static_cast<std::size_t>(sample);
        text += io::csv_line(
            {std::to_string(sample), name_of(part),
             set.classifies() ? class_text(set.preparation, static_cast<std::size_t>(set.labels[at]))
                              : fmt::format("{:.7g}", target.mean + target.deviation * static_cast<double>(set.targets[at]))});
    }
    return text;
}

Result<std::string> show_samples(const SampleRequest& request, const std::string& sheet, const std::string& list) {
    MILLRACE_LET(set, load_sample_set(request));
    std::string text;
    for (const Part part : kAllParts) text += fmt::format("{}: {} {}\n", name_of(part), counted(set.part(part).size()), set.unit);
    text += inputs_text(set);
    if (set.classifies()) text += classes_text(set);
    for (const std::string& note : set.notes) text += note + "\n";
    if (!list.empty()) {
        MILLRACE_TRY(io::write_atomically(list, list_of(set)));
        text += fmt::format("{}: part and answer of each of the {}\n", list, set.unit);
    }
    if (sheet.empty()) return text;
    if (!set.has_images()) return Error{fmt::format("--sheet draws images; {} holds {}", request.path.string(), set.unit)};
    MILLRACE_LET(drawn, sheet_of(set));
    MILLRACE_LET(png, io::encode_png(drawn));
    MILLRACE_TRY(io::write_atomically(sheet, std::string_view(png)));
    return text + fmt::format("{}: the first {} training {} of each class, a class in a row\n", sheet, kSheetColumns, set.unit);
}

Result<std::string> show_text(const Path& path) {
    MILLRACE_LET(files, read_text_files(path));
    MILLRACE_LET(words, word_tokenizer(files, 1 << 20));
    std::string text;
    for (const Part part : kAllParts)
        text += fmt::format("{}: {}, {} words\n", name_of(part), base::print_bytes(files.texts[index_of(part)].size()),
                            counted(words.encode(files.texts[index_of(part)]).size()));
    return text;
}

}  // namespace

DataCommand show_command() {
    DataCommand command{"show", "say what a path is taken for: parts, classes with counts, sizes", {}, {}, {}};
    command.examples =
        "Examples:\n  millrace data show photos --sheet photos.png\n  millrace data show houses.csv --target price";
    command.options = {{"PATH", "folder or file", std::string(), {}, true},
                       {"--sheet", "PNG file for a sheet of images of each class", std::string(), "FILE"},
                       {"--list", "CSV file for the part and the answer of each sample", std::string(), "FILE"},
                       {"--size", "pictures: as data.size", std::string(), "WxH"},
                       {"--target", "tables: as data.target", std::string(), "COLUMN"},
                       {"--ignore", "tables: as data.ignore", std::string(), "COLUMNS"}};
    command.run = [](const CommandOptions& given, const CommandProgress&) -> base::Result<std::string> {
        SampleRequest request;
        request.path = given[0].as<std::string>();
        request.size = given[3].as<std::string>();
        request.target = given[4].as<std::string>();
        request.ignore = given[5].as<std::string>();
        const FormWords& form = words_of(form_of(request.path));
        std::string text = fmt::format("{} holds {}\n", request.path.string(), form.holds);
        if (form.kind == DataKind::samples) {
            MILLRACE_LET(more, show_samples(request, given[1].as<std::string>(), given[2].as<std::string>()));
            return text + more.substr(0, more.size() - 1);
        }
        if (form.form == Form::text) {
            MILLRACE_LET(more, show_text(request.path));
            text += more;
        }
        text.pop_back();
        return text;
    };
    return command;
}

}  // namespace millrace::data
