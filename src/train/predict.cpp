#include "train/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/log.h"
#include "data/forms.h"
#include "data/load.h"
#include "data/resident_samples.h"
#include "io/pending_file.h"
#include "io/table_file.h"
#include "models/weights.h"
#include "train/evaluate.h"
#include "train/setup.h"

namespace millrace::train {
namespace {

constexpr std::uint64_t kMostNamed = 5;  ///< failed samples in the log

/// As the checkpoint says; one of earlier versions leaves it to the run's own data.
base::Result<data::Preparation> preparation_of(const BestWeights& best, const data::StoredData& stored) {
    constexpr const char* kPlace = "data_preparation of the checkpoint";
    if (!stored.preparation.empty()) return data::decode_preparation(stored.preparation, kPlace);
    MILLRACE_LET(own, data::load_data(best.recipe, best.family->data, best.family->token_keys, false, stored));
    return data::decode_preparation(own.source->preparation(), kPlace);
}

/// Over data that `load` gives.
base::Result<Setup> set_up_best(const BestWeights& best, const data::StoredData& stored,
                                std::function<base::Result<data::LoadedData>()> load) {
    SetUpOptions options{.stored = stored, .class_reports = true};
    options.load = std::move(load);
    MILLRACE_LET(setup, set_up(best.recipe, false, options));
    MILLRACE_TRY(models::load_weights(setup.engine->store(), best.checkpoint, false, setup.engine->attachments()));
    return setup;
}

/// Samples of all inputs through one engine whose data are as many rows as it evaluates at once.
class SampleRows {
public:
    /// `source` is the engine's.
    SampleRows(Engine& engine, const data::ResidentSamples& source, const data::Preparation& prepared, PredictReport& report)
        : engine_(engine), source_(source), answers_(prepared, static_cast<std::size_t>(engine.members())), report_(report) {}

    base::Status write(io::RowWriter& to, const std::vector<data::Inputs>& all, const PredictRequest& request) {
        std::uint64_t count = 0;
        for (const data::Inputs& each : all) count += static_cast<std::uint64_t>(each.count);
        const bool named = !all.front().names.empty();
        std::vector<std::string> columns = answers_.columns();
        columns.insert(columns.begin(), named ? "file" : "row");
        if (named) columns.emplace_back("note");
        MILLRACE_TRY(to.begin(std::move(columns), count, answers_.values()));
        const std::int64_t most = source_.samples(data::Part::test);
        for (const data::Inputs& inputs : all)
            for (std::int64_t first = 0; first < inputs.count; first += most) {
                MILLRACE_TRY(write_rows(to, inputs, first, std::min(most, inputs.count - first)));
                if (request.progress) request.progress(report_.samples, count);
            }
        if (report_.failed < count) return base::ok();
        return base::Error{fmt::format("none of the {} {} has an answer", count, report_.unit), request.inputs.front().string()};
    }

private:
    base::Status write_rows(io::RowWriter& to, const data::Inputs& inputs, std::int64_t first, std::int64_t count) {
        MILLRACE_LET(rows, inputs.read(first, count));
        source_.write_inputs(engine_.store(), rows);
        const auto take = [&](std::int64_t begin, std::int64_t batch, const std::vector<double>& outputs) -> base::Status {
            for (std::int64_t row = begin; row < std::min(begin + batch, count); ++row) {
                const auto at = rows.unreadable.find(static_cast<std::size_t>(row));
                const Answer answer = answers_.of(outputs, static_cast<std::size_t>(row - begin));
                const std::string reason = at != rows.unreadable.end() ? at->second
                                           : answer.cells.empty()      ? "the model's answer is not a number"
                                                                       : "";
                MILLRACE_TRY(write_row(to, inputs, first + row, reason.empty() ? answer : none_, reason));
            }
            return base::ok();
        };
        return engine_.read_outputs(data::Part::test, count, take);
    }

    base::Status write_row(io::RowWriter& to, const data::Inputs& inputs, std::int64_t sample, Answer answer,
                           const std::string& reason) {
        const bool named = !inputs.names.empty();
        const std::uint64_t number = report_.samples++;
        const std::string& name = named ? inputs.names[static_cast<std::size_t>(sample)] : fmt::format("row {}", number);
        if (!reason.empty() && report_.failed++ < kMostNamed) MILLRACE_LOG(warn, "{} {}", name, reason);
        answer.cells.insert(answer.cells.begin(), named ? io::Cell(name) : io::Cell(static_cast<std::int64_t>(number)));
        if (named) answer.cells.push_back(reason.empty() ? io::Cell() : io::Cell(reason));
        return to.add(answer.cells, answer.values);
    }

    Engine& engine_;
    const data::ResidentSamples& source_;
    Answers answers_;
    const Answer none_{std::vector<io::Cell>(answers_.columns().size()),
                       std::vector<float>(answers_.values(), NAN)};  ///< in place of one
    PredictReport& report_;
};

/// Gives the seconds that it took. What `rows` fails by is no error of the file, unless that cannot be written.
base::Result<double> write_file(const PredictRequest& request, io::RowForm form,
                                const std::function<base::Status(io::RowWriter&)>& rows) {
    const auto begin = std::chrono::steady_clock::now();
    base::Status outcome = base::ok();
    bool writes = true;
    const auto written = io::write_atomically(request.out, [&](io::FileWriter& writer) {
        io::RowWriter to(writer, form);
        outcome = rows(to);
        writes = writer.flush().ok();
        return outcome;
    });
    if (writes) MILLRACE_TRY(std::move(outcome));
    MILLRACE_TRY(written);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

base::Result<PredictReport> predict_samples(const PredictRequest& request, io::RowForm form, const BestWeights& best,
                                            const data::StoredData& stored) {
    MILLRACE_LET(prepared, preparation_of(best, stored));
    MILLRACE_LET(inputs, data::open_inputs(request.inputs, prepared));
    const data::ResidentSamples* source = nullptr;
    MILLRACE_LET(setup, set_up_best(best, stored, [&]() -> base::Result<data::LoadedData> {
                     auto samples = data::placeholders(prepared, static_cast<std::int32_t>(best.recipe.integer("eval.batch")));
                     source = samples.get();
                     return data::LoadedData{best.state.data, std::move(samples)};
                 }));
    PredictReport report{setup.device, inputs.front().unit};
    SampleRows rows(*setup.engine, *source, prepared, report);
    MILLRACE_SET(report.seconds, write_file(request, form, [&](io::RowWriter& to) { return rows.write(to, inputs, request); }));
    return report;
}

using Texts = std::vector<std::shared_ptr<const data::TextSet>>;

/// Of all inputs; of a folder those of its parts.
base::Result<Texts> load_texts(const PredictRequest& request, const BestWeights& best, const data::StoredData& stored) {
    Texts texts;
    for (const io::Path& input : request.inputs) {
        std::error_code ignored;
        std::vector<io::Path> files{input};
        if (std::filesystem::is_directory(input, ignored))
            files = {input / data::kTextFiles[0], input / data::kTextFiles[1], input / data::kTextFiles[2]};
        for (const io::Path& file : files) MILLRACE_SET(texts.emplace_back(), data::load_whole_text(best.recipe, file, stored));
    }
    return texts;
}

/// Rows of the tokens of one text, which windows of `length` predict, counted on from `position` to `count`.
base::Status write_tokens(io::RowWriter& to, Engine& engine, const data::TextSet& text, std::size_t length,
                          const PredictRequest& request, std::uint64_t count, std::int64_t& position) {
    const std::vector<std::int32_t>& tokens = text.tokens(data::Part::test);
    std::vector<double> probabilities(static_cast<std::size_t>(engine.members()), std::numeric_limits<double>::quiet_NaN());
    const auto add = [&](const std::int32_t& token) {
        const Spread probability = spread_of(probabilities);
        std::vector<io::Cell> cells{position++, text.tokenizer->decode(std::span(&token, 1)), probability.mean};
        if (probabilities.size() > 1) cells.emplace_back(probability.deviation);
        const auto value = static_cast<float>(probability.mean);
        return to.add(cells, std::span(&value, 1));
    };
    MILLRACE_TRY(add(tokens.front()));  // nothing predicts it
    const auto take = [&](std::int64_t first, std::int64_t rows, const std::vector<double>& losses) -> base::Status {
        const std::size_t each = losses.size() / probabilities.size(), begin = static_cast<std::size_t>(first) * length + 1;
        const std::size_t end = std::min(begin + static_cast<std::size_t>(rows) * length, tokens.size());
        for (std::size_t token = begin; token < end; ++token) {
            for (std::size_t k = 0; k < probabilities.size(); ++k) probabilities[k] = std::exp(-losses[k * each + token - begin]);
            MILLRACE_TRY(add(tokens[token]));
        }
        if (request.progress) request.progress(static_cast<std::uint64_t>(position), count);
        return base::ok();
    };
    return engine.read_outputs(data::Part::test, engine.source().samples(data::Part::test), take);
}

base::Result<PredictReport> predict_texts(const PredictRequest& request, io::RowForm form, const BestWeights& best,
                                          const data::StoredData& stored) {
    MILLRACE_LET(texts, load_texts(request, best, stored));
    const auto length = static_cast<std::int32_t>(best.recipe.integer("data.length"));
    PredictReport report{"", "tokens"};
    for (const auto& text : texts) report.samples += text->tokens(data::Part::test).size();
    const auto write = [&](io::RowWriter& to) -> base::Status {
        std::vector<std::string> columns{"position", "token", "probability"};
        if (best.recipe.integer("members") > 1) columns.emplace_back("spread");
        MILLRACE_TRY(to.begin(std::move(columns), report.samples, 0));
        std::int64_t position = 0;
        for (const auto& text : texts) {
            MILLRACE_LET(setup, set_up_best(best, stored, [&] { return data::windows_of(text, length); }));
            MILLRACE_TRY(
                write_tokens(to, *setup.engine, *text, static_cast<std::size_t>(length), request, report.samples, position));
            report.device = setup.device;
        }
        return base::ok();
    };
    MILLRACE_SET(report.seconds, write_file(request, form, write));
    return report;
}

base::Result<PredictReport> predict_files(const PredictRequest& request, io::RowForm form, const BestWeights& best) {
    MILLRACE_LET(device, choose_device(best.recipe.text("device")));
    MILLRACE_LET(precision, choose_precision(best.recipe.text("precision"), device));
    models::ClassifyReport done;
    const auto write = [&](io::RowWriter& to) -> base::Status {
        const models::CheckpointRequest of{best.recipe, best.checkpoint, device, precision};
        MILLRACE_SET(done, best.family->classify({of, best_member(best), request.inputs, to, request.progress}));
        return base::ok();
    };
    MILLRACE_TRY(write_file(request, form, write));
    return PredictReport{done.device, "files", done.summary, done.files, done.failed, done.seconds};
}

/// Scores become probabilities.
void soft_max(std::span<double> scores) {
    const double top = *std::ranges::max_element(scores);
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (double& score : scores) score /= sum;
}

}  // namespace

base::Result<PredictReport> predict(const PredictRequest& request) {
    MILLRACE_TRY(io::check_writable(request.out));
    MILLRACE_LET(form, io::row_form_of(request.out));
    std::vector<std::string> sets;
    if (request.batch != 0) sets.push_back(fmt::format("eval.batch={}", request.batch));
    MILLRACE_LET(best, load_best(request.run, request.device, "", std::move(sets)));
    if (best.family->classify != nullptr) return predict_files(request, form, best);
    MILLRACE_LET(stored, models::stored_data(best.recipe, best.checkpoint));
    if (best.family->data == data::DataKind::samples) return predict_samples(request, form, best, stored);
    if (best.family->data == data::DataKind::text) return predict_texts(request, form, best, stored);
    return base::Error{fmt::format("{} predicts nothing about {}; `millrace eval` scores them", best.family->name,
                                   data::unit_of(best.family->data)),
                       request.run.string()};
}

Spread spread_of(std::span<const double> values) {
    const auto count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return {mean, std::sqrt(squares / count)};
}

std::vector<std::string> Answers::columns() const {
    std::vector<std::string> names{prepared_.target ? prepared_.target->name : "class"};
    if (!prepared_.target && values() > kMostColumns) names.emplace_back("probability");
    if (!prepared_.target && values() <= kMostColumns)
        for (std::size_t i = 0; i < values(); ++i)
            names.push_back("p_" + (prepared_.class_names.empty() ? std::to_string(i) : prepared_.class_names[i]));
    if (members_ > 1) names.emplace_back("spread");
    return names;
}

Answer Answers::of(std::span<const double> outputs, std::size_t row) const {
    const std::size_t width = values(), all = outputs.size() / members_;
    std::vector<double> scores;
    for (std::size_t member = 0; member < members_; ++member) {
        const auto own = outputs.subspan(member * all + row * width, width);
        scores.insert(scores.end(), own.begin(), own.end());
    }
    if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); })) return {};
    if (prepared_.target) {
        const auto [value, spread] = spread_of(scores);
        const double mean = prepared_.target->mean, deviation = prepared_.target->deviation;
        Answer answer{{mean + deviation * value}, {static_cast<float>(mean + deviation * value)}};
        if (members_ > 1) answer.cells.emplace_back(deviation * spread);
        return answer;
    }
    std::vector<double> mean(width);
    for (std::size_t member = 0; member < members_; ++member) {
        const auto own = std::span(scores).subspan(member * width, width);
        soft_max(own);
        for (std::size_t i = 0; i < width; ++i) mean[i] += own[i] / static_cast<double>(members_);
    }
    const auto chosen = static_cast<std::size_t>(std::ranges::max_element(mean) - mean.begin());
    Answer answer{{}, {mean.begin(), mean.end()}};
    const auto& names = prepared_.class_names;
    answer.cells.push_back(names.empty() ? io::Cell(static_cast<std::int64_t>(chosen)) : io::Cell(names[chosen]));
    const auto listed = width > kMostColumns ? std::span(&mean[chosen], 1) : std::span(mean);
    answer.cells.insert(answer.cells.end(), listed.begin(), listed.end());
    if (members_ == 1) return answer;
    std::vector<double> each;
    for (std::size_t member = 0; member < members_; ++member) each.push_back(scores[member * width + chosen]);
    answer.cells.emplace_back(spread_of(each).deviation);
    return answer;
}

}  // namespace millrace::train
