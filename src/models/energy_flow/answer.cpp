#include "models/energy_flow/energy_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "data/pairs/pairs.h"
#include "models/energy_flow/energy_flow.h"
#include "models/registry.h"
#include "models/weights.h"

namespace millrace::models {
namespace {

using Numbered = std::vector<std::vector<std::int32_t>>;

base::Result<Numbered> number(const TextRequest& request, const TextShape& sentences) {
    Numbered all;
    for (const std::string& text : request.texts) {
        std::vector<std::int32_t> ids = sentences.tokenizer->encode(text);
        if (ids.empty()) return base::Error{"a text is empty; a sentence such as \"The pump leaked.\" would be right", "--text"};
        // The mark of a word's beginning alone says nothing.
        const auto says_something = [&](std::int32_t id) {
            return id != data::Tokenizer::kUnknown && !sentences.tokenizer->decode(std::span(&id, 1)).empty();
        };
        if (std::none_of(ids.begin(), ids.end(), says_something))
            return base::Error{fmt::format("nothing in \"{}\" occurs in the text the run was trained on", text), "--text"};
        if (static_cast<std::int32_t>(ids.size()) > sentences.input_tokens)
            return base::Error{
                fmt::format("\"{}\" has {} tokens; the run's sentences have up to {}, so a shorter one would be right", text,
                            ids.size(), sentences.input_tokens),
                "--text"};
        all.push_back(std::move(ids));
    }
    return all;
}

/// A program that answers some texts at once.
struct Answering {
    std::unique_ptr<TrainedModel> trained = {};
    nn::Sequences inputs = {};
    std::vector<tensor::View> kept = {};
    std::size_t width = 0;  ///< of a vector
};

base::Result<Answering> begin_answering(const TextRequest& request, const TextShape& texts, std::int32_t rows) {
    Answering made;
    const io::SafetensorsFile& file = request.checkpoint.members.front().model;
    if (const std::size_t members = request.checkpoint.members.size(); members != 1)
        return base::Error{fmt::format("the checkpoint holds {} members, texts are answered by one", members), file.place()};
    const io::TensorView* map = file.find("target_map");
    if (map == nullptr || map->shape.size() != 2)
        return base::Error{"tensor target_map is missing or of another shape; the file is of another model", file.place()};
    made.width = static_cast<std::size_t>(map->shape[1]);
    constexpr auto kReal = data::Field::Kind::real, kInteger = data::Field::Kind::integer;
    MILLRACE_LET(model, make(request.recipe, {{"vector", kReal, static_cast<std::int32_t>(map->shape[1])},
                                              {"input_tokens", kInteger, texts.input_tokens, 0, texts.tokenizer},
                                              {"target_tokens", kInteger, texts.target_tokens, 0, texts.tokenizer}}));
    auto& flow = dynamic_cast<EnergyFlow&>(*model);
    const auto declare = [&](tape::Store& store) {
        made.inputs.ids = store.add_data("texts", tensor::DType::i32, rows, texts.input_tokens);
        made.inputs.lengths = store.add_data("lengths", tensor::DType::i32, rows, 1);
        return base::ok();
    };
    const auto build = [&](tape::Builder& builder) { made.kept = flow.build_answer(builder, made.inputs).kept; };
    MILLRACE_SET(made.trained, TrainedModel::create(request, std::move(model), "answer", declare, build));
    return made;
}

/// ids and vectors [count, E] of texts [first, first + count).
void answer(const Answering& with, const Numbered& texts, std::size_t first, std::size_t count, Numbered& answers,
            std::vector<double>& vectors) {
    const auto columns = static_cast<std::size_t>(with.inputs.ids.cols), rows = static_cast<std::size_t>(with.inputs.ids.rows);
    std::vector<std::int32_t> ids(rows * columns), lengths(rows);  // rows behind the last text stay empty and reach nothing
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<std::int32_t>& text = texts[first + i];
        std::copy(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(i * columns));
        lengths[i] = static_cast<std::int32_t>(text.size());
    }
    with.trained->store().write(with.inputs.ids, ids);
    with.trained->store().write(with.inputs.lengths, lengths);
    tape::Program& program = with.trained->program();
    program.run();
    const std::vector<double> answered = program.read(with.kept[0]), answer_lengths = program.read(with.kept[1]),
                              found = program.read(with.kept[2]);
    const std::size_t most = answered.size() / rows;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::int32_t>& answer = answers.emplace_back();
        for (std::size_t t = 0; t < static_cast<std::size_t>(answer_lengths[i]); ++t)
            answer.push_back(static_cast<std::int32_t>(answered[i * most + t]));
    }
    vectors.insert(vectors.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count * with.width));
}

/// Fills in the nearest of the targets set aside; `vectors` [answers, width].
base::Status find_nearest(const base::Recipe& recipe, std::size_t width, const std::vector<double>& vectors,
                          std::vector<TextAnswer>& answers) {
    MILLRACE_LET(set, data::load_pair_set(recipe.text("data.path"), recipe.real("data.validation"),
                                          static_cast<std::uint64_t>(recipe.integer("data.split_seed"))));
    if (set.dimensions != width)
        return base::Error{fmt::format("has vectors of {} dimensions; the run's have {}", set.dimensions, width),
                           recipe.text("data.path")};
    for (std::size_t i = 0; i < answers.size(); ++i) {
        double squares = 0;
        for (std::size_t d = 0; d < width; ++d) squares += vectors[i * width + d] * vectors[i * width + d];
        for (const std::int32_t sample : set.part(data::Part::validation)) {
            const auto row = static_cast<std::size_t>(sample);
            double dot = 0;
            for (std::size_t d = 0; d < width; ++d) dot += vectors[i * width + d] * double{set.targets[row * width + d]};
            const double cosine = squares > 0 ? dot / std::sqrt(squares) : 0;
            if (answers[i].cosine && cosine <= *answers[i].cosine) continue;
            answers[i].cosine = cosine;
            answers[i].nearest = set.texts[row].target;
        }
    }
    return base::ok();
}

}  // namespace

base::Result<data::StoredData> stored_texts(const io::LoadedCheckpoint& checkpoint) {
    data::StoredData stored;
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    MILLRACE_LET(tokenizer, data::stored_tokenizer(file, TextBridge::kTokenizer));
    if (!tokenizer) return stored;
    stored.tokenizer = std::move(tokenizer);
    MILLRACE_LET(inputs, stored_rows(file, TextBridge::kEncoderPositions));
    MILLRACE_LET(targets, stored_rows(file, TextBridge::kDecoderPositions, TextBridge::kPrefix));
    stored.widths = {{"input_tokens", inputs}, {"target_tokens", targets}};
    return stored;
}

base::Result<TextReport> answer_texts(const TextRequest& request) {
    MILLRACE_LET(stored, stored_texts(request.checkpoint));
    if (!stored.tokenizer)
        return base::Error{
            "the run has no text bridge, so it cannot read texts; energy_flow trained with "
            "--set model.text_bridge.enabled=true has one"};
    const TextShape shape{stored.tokenizer, stored.widths.at("input_tokens"), stored.widths.at("target_tokens")};
    MILLRACE_LET(texts, number(request, shape));

    const auto rows = std::min<std::size_t>(texts.size(), static_cast<std::size_t>(request.recipe.integer("eval.batch")));
    MILLRACE_LET(answering, begin_answering(request, shape, static_cast<std::int32_t>(rows)));
    TextReport report;
    report.device = answering.trained->device();
    const auto begin = std::chrono::steady_clock::now();
    Numbered answers;
    std::vector<double> vectors;
    for (std::size_t first = 0; first < texts.size(); first += rows)
        answer(answering, texts, first, std::min(rows, texts.size() - first), answers, vectors);
    MILLRACE_TRY(answering.trained->check());
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto unknown = std::count(texts[i].begin(), texts[i].end(), data::Tokenizer::kUnknown);
        report.answers.push_back({request.texts[i],
                                  shape.tokenizer->decode(answers[i]),
                                  static_cast<std::int32_t>(texts[i].size()),
                                  static_cast<std::int32_t>(unknown),
                                  {},
                                  {}});
    }
    if (request.nearest)
        if (const base::Status found = find_nearest(request.recipe, answering.width, vectors, report.answers); !found.ok())
            MILLRACE_LOG(warn, "the nearest target is not looked for: {}", found.error().text());
    return report;
}

}  // namespace millrace::models
