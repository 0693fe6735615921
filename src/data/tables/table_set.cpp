#include "data/forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/split.h"
#include "base/utf8.h"
#include "io/table_file.h"

namespace millrace::data {
namespace {

constexpr std::size_t kMostWordsOfColumn = 255;
constexpr std::int64_t kMostTableNumbers = std::int64_t{1} << 33;

/// One file, and where its columns have those of the first.
struct TablePart {
    io::TextTable table;
    Path path;
    Part part = Part::train;
    std::vector<std::size_t> columns = {};
};

Result<std::vector<TablePart>> read_parts(const Path& path) {
    std::vector<TablePart> parts;
    std::error_code ignored;
    const auto read = [&](const Path& file, Part part) -> Status {
        MILLRACE_LET(table, io::read_table(file));
        parts.push_back({std::move(table), file, part});
        return base::ok();
    };
    if (!std::filesystem::is_directory(path, ignored)) {
        MILLRACE_TRY(read(path, Part::train));
        return parts;
    }
    for (const auto& [name, part] : kPartNames)
        for (const char* ending : {".csv", ".tsv", ".csv.gz", ".tsv.gz"})
            if (const Path file = path / (std::string(name) + ending); std::filesystem::exists(file, ignored))
                MILLRACE_TRY(read(file, part));
    return parts;
}

/// All rows of all files.
class Rows {
public:
    /// `names`: of the columns; `where` others have them, for people.
    static Result<Rows> of(std::vector<TablePart> parts, std::vector<std::string> names, const std::string& where) {
        Rows rows;
        for (TablePart& part : parts) {
            for (const std::string& name : names) {
                const auto at = std::ranges::find(part.table.names, name);
                if (at == part.table.names.end())
                    return Error{
                        fmt::format("lacks the column \"{}\" of {}; it has {}", name, where, fmt::join(part.table.names, ", ")),
                        part.path.string()};
                part.columns.push_back(static_cast<std::size_t>(at - part.table.names.begin()));
            }
            for (std::size_t row = 0; row < part.table.rows(); ++row) rows.places_.emplace_back(rows.parts_.size(), row);
            rows.counts.emplace_back(part.part, static_cast<std::int32_t>(part.table.rows()));
            rows.parts_.push_back(std::move(part));
        }
        rows.names_ = std::move(names);
        return rows;
    }
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    [[nodiscard]] std::size_t size() const { return places_.size(); }
    [[nodiscard]] std::string_view at(std::size_t row, std::size_t column) const {
        const auto [part, below] = places_[row];
        return parts_[part].table.at(below, parts_[part].columns[column]);
    }
    std::vector<std::pair<Part, std::int32_t>> counts;  ///< of each file

private:
    std::vector<std::string> names_;
    std::vector<TablePart> parts_;
    std::vector<std::pair<std::size_t, std::size_t>> places_;  ///< file, row
};

/// A column's number; names the others where there is none of that name.
Result<std::size_t> column_named(const Rows& rows, const std::string& name, const char* key, const Path& place) {
    const auto at = std::ranges::find(rows.names(), name);
    if (at != rows.names().end()) return static_cast<std::size_t>(at - rows.names().begin());
    return Error{fmt::format("{} = \"{}\" is no column; there are {}", key, name, fmt::join(rows.names(), ", ")), place.string()};
}

Column measure_column(const Rows& rows, std::size_t at, const std::vector<std::int32_t>& train) {
    Column column{rows.names()[at]};
    double count = 0, squares = 0;
    std::map<std::string_view, std::size_t> words;
    for (const std::int32_t row : train) {
        const std::string_view cell = rows.at(static_cast<std::size_t>(row), at);
        if (is_missing(cell)) continue;
        ++words[cell];
        const auto value = number_of(cell);
        column.category |= !value;
        if (!value || column.category) continue;
        count += 1;
        const double away = *value - column.mean;
        column.mean += away / count;
        squares += away * (*value - column.mean);
    }
    column.deviation = count > 0 && squares > 0 ? std::sqrt(squares / count) : 1;
    if (!column.category) return column;
    column.mean = 0, column.deviation = 1;
    std::vector<std::pair<std::string_view, std::size_t>> frequent(words.begin(), words.end());
    std::ranges::stable_sort(frequent, std::greater{}, &std::pair<std::string_view, std::size_t>::second);
    frequent.resize(std::min(frequent.size(), kMostWordsOfColumn));
    for (const auto& [word, times] : frequent) column.words.emplace_back(word);
    std::ranges::sort(column.words);
    return column;
}

/// Writes what a cell becomes; false where it was missing.
bool write_cell(const Column& column, std::string_view cell, float* to) {
    const bool missing = is_missing(cell);
    if (column.category) {
        const auto at = std::ranges::lower_bound(column.words, cell);
        const bool known = !missing && at != column.words.end() && *at == cell;
        to[known ? at - column.words.begin() + 1 : 0] = 1;
    } else if (const auto value = number_of(cell)) {
        to[0] = static_cast<float>((*value - column.mean) / column.deviation);
    }
    return !missing;
}

Status add_inputs(SampleSet& set, const Rows& rows, const std::vector<std::size_t>& inputs) {
    std::int64_t width = 0;
    for (const Column& column : set.preparation.columns) width += static_cast<std::int64_t>(column.width());
    if (width * set.count > kMostTableNumbers || width > 1 << 24)
        return Error{
            fmt::format("{} rows would become {} numbers each; data.ignore names columns to leave out", set.count, width)};
    set.width = static_cast<std::int32_t>(width);
    set.numbers.assign(static_cast<std::size_t>(width) * rows.size(), 0);
    std::size_t first = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Column& column = set.preparation.columns[i];
        std::size_t missing = 0;
        for (std::size_t row = 0; row < rows.size(); ++row)
            missing +=
                write_cell(column, rows.at(row, inputs[i]), set.numbers.data() + row * static_cast<std::size_t>(width) + first)
                    ? 0
                    : 1;
        if (missing > 0)
            set.notes.push_back(
                fmt::format("{}: {} of {} are missing and become {}", column.name, missing, rows.size(),
                            column.category ? "a word of their own" : fmt::format("the mean, {:.4g}", column.mean)));
        first += column.width();
    }
    return base::ok();
}

/// Which columns are inputs: those of the checkpoint, or all but the answer and what is left out.
Result<std::vector<std::size_t>> input_columns(const Rows& rows, std::size_t answer, const SampleRequest& request) {
    std::vector<std::size_t> inputs;
    if (request.stored != nullptr) {
        for (const Column& column : request.stored->columns) {
            MILLRACE_LET(at, column_named(rows, column.name, "the checkpoint's column", request.path));
            inputs.push_back(at);
        }
        return inputs;
    }
    std::vector<std::size_t> ignored{answer};
    if (!request.ignore.empty())
        for (const std::string& name : base::split(request.ignore, ',')) {
            MILLRACE_LET(at, column_named(rows, name, "data.ignore", request.path));
            ignored.push_back(at);
        }
    for (std::size_t at = 0; at < rows.names().size(); ++at)
        if (std::ranges::find(ignored, at) == ignored.end()) inputs.push_back(at);
    if (inputs.empty()) return Error{"has no column beside the answer's", request.path.string()};
    return inputs;
}

}  // namespace

Result<std::vector<Inputs>> open_table(const Path& path, const Preparation& prepared) {
    MILLRACE_LET(parts, read_parts(path));
    std::vector<std::string> names;
    for (const Column& column : prepared.columns) names.push_back(column.name);
    MILLRACE_LET(table, Rows::of(std::move(parts), std::move(names), "the training data"));
    Inputs inputs{"rows", static_cast<std::int64_t>(table.size())};
    inputs.read = [rows = std::make_shared<const Rows>(std::move(table)), prepared](std::int64_t first, std::int64_t count) {
        InputRows read;
        read.numbers.assign(static_cast<std::size_t>(count) * prepared.width(), 0);
        float* to = read.numbers.data();
        for (std::int64_t row = first; row < first + count; ++row)
            for (std::size_t i = 0; i < prepared.columns.size(); to += prepared.columns[i++].width())
                write_cell(prepared.columns[i], rows->at(static_cast<std::size_t>(row), i), to);
        return read;
    };
    return std::vector{std::move(inputs)};
}

Result<SampleSet> load_table_set(const SampleRequest& request) {
    MILLRACE_LET(parts, read_parts(request.path));
    const std::vector<std::string> names = parts.front().table.names;
    const std::string first_file = parts.front().path.filename().string();
    MILLRACE_LET(rows, Rows::of(std::move(parts), names, first_file));
    for (const std::string& name : rows.names())
        if (base::find_broken_utf8(name) != std::string::npos)
            return Error{"the name of a column is not UTF-8", request.path.string()};
    if (rows.size() > std::size_t{1} << 30) return Error{"has more than 2^30 rows", request.path.string()};
    SampleSet set;
    set.name = folder_name(request.path);
    set.unit = "rows";
    set.count = static_cast<std::int32_t>(rows.size());
    add_files(set, rows.counts, request);
    const std::string name = request.stored != nullptr ? request.stored->answer : request.target;
    if (name.empty())
        return Error{fmt::format("data.target names no column to predict; there are {}", fmt::join(rows.names(), ", ")),
                     request.path.string()};
    MILLRACE_LET(answer, column_named(rows, name, "data.target", request.path));
    MILLRACE_LET(inputs, input_columns(rows, answer, request));
    if (request.stored != nullptr)
        set.preparation.columns = request.stored->columns;
    else
        for (const std::size_t at : inputs) set.preparation.columns.push_back(measure_column(rows, at, set.part(Part::train)));
    MILLRACE_TRY(add_inputs(set, rows, inputs));
    std::vector<std::string_view> answers;
    for (std::size_t row = 0; row < rows.size(); ++row) answers.push_back(rows.at(row, answer));
    MILLRACE_TRY(set_answers(set, name, answers, request));
    MILLRACE_TRY(sum_up(set));
    return set;
}

}  // namespace millrace::data
