#include "models/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "models/weights.h"

namespace millrace::models {
namespace {

/// A program for one token of every member of a checkpoint, with caches of their own.
class Writer {
public:
    static base::Result<std::unique_ptr<Writer>> create(const PromptRequest& request, std::unique_ptr<Model> model);
    /// Logits of what follows the token at that position.
    std::vector<double> read(std::int32_t token, std::int32_t position);
    [[nodiscard]] const LanguageConfig& language() const { return language_; }
    [[nodiscard]] const TrainedModel& trained() const { return *trained_; }

private:
    std::unique_ptr<TrainedModel> trained_;
    LanguageConfig language_;
    nn::Sequences token_;
    nn::StepCaches caches_;
    tensor::View position_row_, logits_;
    std::vector<std::vector<float>> tables_;  ///< of positions, by member
    std::size_t member_ = 0;
};

base::Result<std::unique_ptr<Writer>> Writer::create(const PromptRequest& request, std::unique_ptr<Model> given) {
    std::unique_ptr<Writer> made(new Writer);
    made->member_ = request.member;
    auto& model = dynamic_cast<LanguageModel&>(*given);
    const LanguageConfig& config = made->language_ = model.language();
    const auto members = static_cast<std::int32_t>(request.checkpoint.members.size());
    const auto of_members = [members](tensor::View view) {
        view.k = members;
        view.rows /= members;
        view.stride_k = std::int64_t{view.rows} * view.cols;
        return view;
    };
    const auto for_all = [members](tensor::View view) {
        view.k = members;
        return view;
    };
    const auto declare = [&](tape::Store& store) {
        made->token_.ids = for_all(store.add_data("token", tensor::DType::i32, 1, 1));
        made->token_.lengths = for_all(store.add_data("length", tensor::DType::i32, 1, 1));
        made->token_.caches = &made->caches_;
        made->caches_.position = store.add_data("position", tensor::DType::i32, 1, 1);
        made->position_row_ = of_members(store.add_data("position row", tape::stat_of(request.precision), members, config.width));
        for (const std::int32_t width : model.cached_widths())
            made->caches_.layers.push_back(
                of_members(store.add_data("cache", tape::real_of(request.precision), members * config.length, 2 * width)));
        return base::ok();
    };
    const auto build = [&](tape::Builder& builder) {
        made->logits_ = model.build_step(builder, made->token_, made->position_row_).view;
        builder.keep(made->logits_);
    };
    MILLRACE_SET(made->trained_, TrainedModel::create(request, std::move(given), "go on", declare, build));
    for (int k = 0; k < members; ++k) made->tables_.push_back(model.position_table(made->trained_->store(), k));
    return made;
}

std::vector<double> Writer::read(std::int32_t token, std::int32_t position) {
    const auto width = static_cast<std::size_t>(language().width), at = static_cast<std::size_t>(position) * width;
    tape::Program& program = trained_->program();
    std::vector<double> rows;
    for (const std::vector<float>& table : tables_)
        rows.insert(rows.end(), table.begin() + static_cast<std::ptrdiff_t>(at),
                    table.begin() + static_cast<std::ptrdiff_t>(at + width));
    const auto one = [&program](tensor::View view, double value) {
        view.k = 1;
        program.write(view, {value});
    };
    one(token_.ids, token);
    one(token_.lengths, 1);
    program.write(caches_.position, {static_cast<double>(position)});
    program.write(position_row_, rows);
    program.run();
    const std::vector<double> all = program.read(logits_);
    const std::size_t vocabulary = all.size() / tables_.size();
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(member_ * vocabulary);
    return {begin, begin + static_cast<std::ptrdiff_t>(vocabulary)};
}

base::Status check(const PromptRequest& request) {
    if (request.tokens < 1 || request.tokens > 100'000)
        return base::Error{fmt::format("{} tokens; 1 to 100000 would be right", request.tokens), "--tokens"};
    if (!(request.temperature >= 0) || request.temperature > 100)
        return base::Error{fmt::format("{}; a number from 0 to 100 would be right", request.temperature), "--temperature"};
    if (request.top_k < 0) return base::Error{fmt::format("{}; 0 or more would be right", request.top_k), "--top-k"};
    return base::ok();
}

/// Tokens below it have a text; a vocabulary may have more numbers than words.
std::size_t written_tokens(const data::Tokenizer& tokenizer) {
    std::int32_t last = tokenizer.vocabulary();
    for (; last > 0; --last)
        if (const std::int32_t id = last - 1; !tokenizer.decode(std::span(&id, 1)).empty()) break;
    return static_cast<std::size_t>(last);
}

}  // namespace

std::int32_t draw_token(const std::vector<double>& logits, double temperature, std::int32_t top_k, std::int32_t first,
                        double uniform) {
    std::vector<std::int32_t> order(
        logits.size() > static_cast<std::size_t>(first) ? logits.size() - static_cast<std::size_t>(first) : 0);
    if (order.empty()) return 0;
    std::iota(order.begin(), order.end(), first);
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
        const double left = logits[static_cast<std::size_t>(a)], right = logits[static_cast<std::size_t>(b)];
        return left > right || (left == right && a < b);
    };
    const std::size_t kept = temperature == 0 ? 1
                             : top_k > 0      ? std::min<std::size_t>(order.size(), static_cast<std::size_t>(top_k))
                                              : order.size();
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), likelier);
    if (kept == 1) return order.front();
    const double top = logits[static_cast<std::size_t>(order.front())];
    double sum = 0;
    std::vector<double> weights;
    weights.reserve(kept);
    for (std::size_t i = 0; i < kept; ++i) {
        weights.push_back(std::exp((logits[static_cast<std::size_t>(order[i])] - top) / temperature));
        sum += weights.back();
    }
    double left = uniform * sum;
    for (std::size_t i = 0; i < kept; ++i) {
        left -= weights[i];
        if (left < 0) return order[i];
    }
    return order[kept - 1];
}

base::Result<data::StoredData> stored_language(const io::LoadedCheckpoint& checkpoint) {
    data::StoredData stored;
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    MILLRACE_LET(tokenizer, data::stored_tokenizer(file, LanguageModel::kTokenizer));
    if (tokenizer == nullptr)
        return base::Error{fmt::format("tensor {} is missing; the file is of another model", LanguageModel::kTokenizer),
                           file.place()};
    MILLRACE_LET(positions, stored_rows(file, "embed.position.weight"));
    stored.tokenizer = std::move(tokenizer);
    stored.widths = {{"tokens", positions + 1}};
    return stored;
}

base::Result<PromptReport> go_on(const PromptRequest& request) {
    MILLRACE_TRY(check(request));
    MILLRACE_LET(stored, stored_language(request.checkpoint));
    data::Fields fields{{"tokens", data::Field::Kind::integer, stored.widths.at("tokens"), stored.tokenizer->vocabulary()},
                        {"length", data::Field::Kind::integer, 1, stored.widths.at("tokens")}};
    fields.front().tokenizer = stored.tokenizer;
    MILLRACE_LET(model, make(request.recipe, fields));
    std::vector<std::int32_t> tokens = stored.tokenizer->encode(request.prompt);
    if (tokens.empty()) return base::Error{"the prompt is empty; a few words would be right", "--prompt"};
    PromptReport report;
    report.prompt_tokens = static_cast<std::int32_t>(tokens.size());
    report.unknown = static_cast<std::int32_t>(std::ranges::count(tokens, stored.tokenizer->unknown()));
    MILLRACE_LET(writer, Writer::create(request, std::move(model)));
    report.device = writer->trained().device();

    const auto begin = std::chrono::steady_clock::now();
    const std::int32_t length = writer->language().length;
    std::size_t next = tokens.size() > static_cast<std::size_t>(length) ? tokens.size() - static_cast<std::size_t>(length) : 0;
    const std::size_t known = written_tokens(*stored.tokenizer);
    std::vector<double> logits;
    for (std::int32_t position = 0; report.tokens < request.tokens;) {
        if (position == length) {  // a full window begins again with its second half
            next = tokens.size() - static_cast<std::size_t>(length) / 2;
            position = 0;
        }
        logits = writer->read(tokens[next++], position++);
        if (next < tokens.size()) continue;
        logits.resize(std::min(logits.size(), known));
        const double uniform = static_cast<double>(
            base::uniform01(base::random_bits(request.seed, static_cast<std::uint32_t>(report.tokens), 0, 0, 0)));
        tokens.push_back(draw_token(logits, request.temperature, request.top_k, stored.tokenizer->end() + 1, uniform));
        ++report.tokens;
    }
    MILLRACE_TRY(writer->trained().check());
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.text = stored.tokenizer->decode(std::span(tokens).last(static_cast<std::size_t>(report.tokens)));
    return report;
}

}  // namespace millrace::models
