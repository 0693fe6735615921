#include "train/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "io/checkpoint.h"
#include "models/energy_flow/energy_flow.h"
#include "models/registry.h"
#include "record/run_directory.h"
#include "tape/program.h"
#include "train/recipe_keys.h"
#include "train/run_settings.h"
#include "train/run_state.h"
#include "train/stored_sentences.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

using Numbered = std::vector<std::vector<std::int32_t>>;

base::Result<Numbered> number(const AnswerRequest& request, const data::SentenceShape& sentences) {
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

/// A model with a store, and one program that answers `rows` texts at once.
class Answering {
public:
    static base::Result<std::unique_ptr<Answering>> create(const base::Recipe& recipe, const io::LoadedCheckpoint& checkpoint,
                                                           const data::SentenceShape& sentences, std::int32_t rows);
    /// ids and vectors [count, E] of texts [first, first + count).
    void run(const Numbered& texts, std::size_t first, std::size_t count, Numbered& answers, std::vector<double>& vectors);
    [[nodiscard]] const std::string& device() const { return device_; }
    [[nodiscard]] std::size_t width() const { return width_; }
    base::Status check() { return backend_->check(); }

private:
    std::string device_;
    std::unique_ptr<ops::Backend> backend_;
    std::unique_ptr<tape::Store> store_;
    std::unique_ptr<models::Model> model_;
    std::unique_ptr<tape::Arena> arena_;
    std::unique_ptr<tape::Program> program_;
    nn::Sentences inputs_;
    std::vector<tensor::View> watched_;
    std::size_t width_ = 0;
};

base::Result<std::unique_ptr<Answering>> Answering::create(const base::Recipe& recipe, const io::LoadedCheckpoint& checkpoint,
                                                           const data::SentenceShape& sentences, std::int32_t rows) {
    std::unique_ptr<Answering> made(new Answering);
    MILLRACE_LET(kind, choose_device(recipe.text("device")));
    MILLRACE_LET(precision, choose_precision(recipe.text("precision"), kind));
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    const io::TensorView* map = file.find("target_map");
    if (map == nullptr || map->shape.size() != 2)
        return base::Error{"tensor target_map is missing or of another shape; the file is of another model", file.place()};
    made->width_ = static_cast<std::size_t>(map->shape[1]);
    const auto width = static_cast<std::int32_t>(map->shape[1]);
    MILLRACE_LET(model, models::make(recipe, {width, width, sentences}));
    made->model_ = std::move(model);
    auto* flow = dynamic_cast<models::EnergyFlow*>(made->model_.get());
    MILLRACE_ASSERT(flow != nullptr, "only energy flow has a text bridge");

    ops::BackendOptions options;
    options.deterministic = recipe.boolean("deterministic");
    options.threads = static_cast<int>(recipe.integer("threads"));
    MILLRACE_LET(backend, ops::make_backend(kind, options));
    made->backend_ = std::move(backend);
    made->device_ = fmt::format("{}: {}", ops::name_of(kind), made->backend_->description());
    tape::StoreOptions store_options;
    store_options.precision = precision;
    store_options.ring_capacity = 1;
    store_options.first_moment = store_options.second_moment = false;
    made->store_ = std::make_unique<tape::Store>(*made->backend_, store_options);
    tape::Store& store = *made->store_;
    MILLRACE_TRY(flow->declare(store));
    made->inputs_.ids = store.add_data("texts", tensor::DType::i32, rows, sentences.input_tokens);
    made->inputs_.lengths = store.add_data("lengths", tensor::DType::i32, rows, 1);
    MILLRACE_TRY(store.allocate());
    store.write_states({ops::MemberState{}});
    store.initialize({1});
    MILLRACE_TRY(load_weights(store, checkpoint, false, flow->attachments()));

    tape::BuildOptions build;
    build.training = false;
    tape::Builder builder(store, build);
    flow->build_answer(builder, made->inputs_);
    made->watched_ = flow->watched();
    made->arena_ = std::make_unique<tape::Arena>(*made->backend_);
    made->program_ = std::make_unique<tape::Program>("answer", store, std::move(builder), *made->arena_);
    MILLRACE_TRY(made->arena_->allocate());
    MILLRACE_TRY(made->program_->prepare());
    return made;
}

void Answering::run(const Numbered& texts, std::size_t first, std::size_t count, Numbered& answers,
                    std::vector<double>& vectors) {
    const auto columns = static_cast<std::size_t>(inputs_.ids.cols), rows = static_cast<std::size_t>(inputs_.ids.rows);
    std::vector<std::int32_t> ids(rows * columns), lengths(rows);  // rows behind the last text stay empty and reach nothing
    for (std::size_t i = 0; i < count; ++i) {
        const std::vector<std::int32_t>& text = texts[first + i];
        std::copy(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(i * columns));
        lengths[i] = static_cast<std::int32_t>(text.size());
    }
    store_->write(inputs_.ids, ids.data(), ids.size() * sizeof(std::int32_t));
    store_->write(inputs_.lengths, lengths.data(), lengths.size() * sizeof(std::int32_t));
    program_->run();
    const std::vector<double> told = program_->read(watched_[0]), told_lengths = program_->read(watched_[1]),
                              found = program_->read(watched_[2]);
    const std::size_t most = told.size() / rows;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::int32_t>& answer = answers.emplace_back();
        for (std::size_t t = 0; t < static_cast<std::size_t>(told_lengths[i]); ++t)
            answer.push_back(static_cast<std::int32_t>(told[i * most + t]));
    }
    vectors.insert(vectors.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count * width_));
}

/// Fills in the nearest of the targets set aside; `vectors` [answers, width].
base::Status find_nearest(const base::Recipe& recipe, std::size_t width, const std::vector<double>& vectors,
                          std::vector<Answer>& answers) {
    MILLRACE_LET(set, data::load_pair_set(recipe.text("data.path"), recipe.real("data.validation"),
                                          static_cast<std::uint64_t>(recipe.integer("data.split_seed"))));
    if (set.dimensions != width)
        return base::Error{fmt::format("has vectors of {} dimensions; the run's have {}", set.dimensions, width),
                           recipe.text("data.path")};
    for (std::size_t i = 0; i < answers.size(); ++i) {
        double squares = 0;
        for (std::size_t d = 0; d < width; ++d) squares += vectors[i * width + d] * vectors[i * width + d];
        for (const std::uint32_t row : set.split.validation) {
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

base::Result<AnswerReport> answer_texts(const io::Path& run, const AnswerRequest& request) {
    MILLRACE_TRY(record::read_manifest(run));
    MILLRACE_LET(checkpoint, io::load_checkpoint(run / "checkpoints" / "best", io::LoadParts::kModelOnly));
    const std::string place = (checkpoint.folder / "state.json").string();
    MILLRACE_LET(state, decode_state(checkpoint.state, place));
    base::RecipeOverrides overrides;
    if (!request.device.empty()) overrides.flags.push_back("device=" + request.device);
    if (!request.data_path.empty()) overrides.flags.push_back("data.path=" + request.data_path);
    MILLRACE_LET(recipe, parse_recipe(state.recipe, place, overrides));
    MILLRACE_LET(sentences, stored_sentences(checkpoint));
    if (!sentences.tokenizer)
        return base::Error{
            "the run has no text bridge, so it cannot read texts; energy_flow trained with "
            "--set model.text_bridge.enabled=true has one",
            run.string()};
    MILLRACE_LET(texts, number(request, sentences));

    const auto rows = std::min<std::size_t>(texts.size(), static_cast<std::size_t>(recipe.integer("eval.batch")));
    MILLRACE_LET(answering, Answering::create(recipe, checkpoint, sentences, static_cast<std::int32_t>(rows)));
    AnswerReport report{
        run.string(), recipe.text("model.name"), recipe.text("model.preset"), answering->device(), state.step, {}, 0};
    const auto begin = std::chrono::steady_clock::now();
    Numbered answers;
    std::vector<double> vectors;
    for (std::size_t first = 0; first < texts.size(); first += rows)
        answering->run(texts, first, std::min(rows, texts.size() - first), answers, vectors);
    MILLRACE_TRY(answering->check());
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto unknown = std::count(texts[i].begin(), texts[i].end(), data::Tokenizer::kUnknown);
        report.answers.push_back({request.texts[i],
                                  sentences.tokenizer->decode(answers[i]),
                                  static_cast<std::int32_t>(texts[i].size()),
                                  static_cast<std::int32_t>(unknown),
                                  {},
                                  {}});
    }
    if (request.nearest)
        if (const base::Status found = find_nearest(recipe, answering->width(), vectors, report.answers); !found.ok())
            MILLRACE_LOG(warn, "the nearest target is not looked for: {}", found.error().text());
    return report;
}

}  // namespace millrace::train
