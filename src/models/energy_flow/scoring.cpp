#include "models/energy_flow/scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/energy_flow/energy_flow.h"
#include "ops/text/text.h"

namespace millrace::models {
namespace {

namespace counter = ops::flow_counter;

void append(std::vector<float>& all, const std::vector<double>& values) {
    for (const double value : values) all.push_back(static_cast<float>(value));
}

double dot(const float* a, const float* b, std::size_t width) {
    double sum = 0;
    for (std::size_t d = 0; d < width; ++d) sum += double{a[d]} * double{b[d]};
    return sum;
}

std::map<std::string, int> words_of(std::string_view text) {
    std::map<std::string, int> words;
    std::string word;
    const auto finish = [&] {
        if (!word.empty()) ++words[word];
        word.clear();
    };
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool upper = c >= 'A' && c <= 'Z';
        // Bytes of other alphabets belong to words; which of them are punctuation is not distinguished.
        if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '\'' || byte >= 0x80)
            word += upper ? static_cast<char>(c - 'A' + 'a') : c;
        else
            finish();
    }
    finish();
    return words;
}

std::vector<std::int32_t> row_of(const std::vector<double>& ids, const std::vector<double>& lengths, std::size_t row) {
    const std::size_t width = ids.size() / lengths.size();
    std::vector<std::int32_t> sentence;
    for (std::size_t t = 0; t < static_cast<std::size_t>(lengths[row]); ++t)
        sentence.push_back(static_cast<std::int32_t>(ids[row * width + t]));
    return sentence;
}

}  // namespace

double mean_cosine(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width) {
    const std::size_t n = targets.size() / width;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float *a = found.data() + i * width, *b = targets.data() + i * width;
        const double length = std::sqrt(dot(a, a, width) * dot(b, b, width));
        sum += length > 0 ? dot(a, b, width) / length : length;
    }
    return sum / static_cast<double>(n);
}

double retrieval_at_1(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width) {
    const std::size_t n = targets.size() / width;
    std::vector<float> columns(targets.size());  // [width, n]: the sums over `width` below then run side by side
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t d = 0; d < width; ++d) columns[d * n + i] = targets[i * width + d];
    std::vector<float> scores(n);
    std::size_t hits = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::fill(scores.begin(), scores.end(), 0.0f);
        double length = 0;
        for (std::size_t d = 0; d < width; ++d) {
            const float value = found[i * width + d];
            length += double{value} * double{value};
            for (std::size_t j = 0; j < n; ++j) scores[j] += value * columns[d * n + j];
        }
        if (!(length > 0) || !std::isfinite(length)) continue;
        bool first = true;
        for (std::size_t j = 0; j < n && first; ++j) first = scores[j] <= scores[i];
        hits += first ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(n);
}

void SurfaceScoring::add(const std::vector<std::vector<double>>& batch) {
    append(found_, batch[found]);
    append(mapper_found_, batch[mapper_found]);
    append(targets_, batch[targets]);
    const auto cells = static_cast<std::size_t>(config_.cells());
    const std::size_t rows = batch[surface].size() / cells;
    double squares = 0;
    for (std::size_t i = 0; i < batch[surface].size(); ++i) {
        const double error = batch[energies][i] - batch[goals][i];
        squares += error * error;
        covered_ += batch[surface][i] != 0 ? 1 : 0;
    }
    cells_ += static_cast<std::int64_t>(batch[surface].size());
    mapper_loss_ += squares / static_cast<double>(cells);
    for (std::size_t i = 0; i < counters_.size(); ++i) counters_[i] += static_cast<std::int64_t>(batch[counters][i]);
    steps_ += batch[counters][counter::steps] * static_cast<double>(rows);
}

Scored SurfaceScoring::finish() const {
    const auto width = static_cast<std::size_t>(config_.embedding);
    const double rows = static_cast<double>(targets_.size()) / static_cast<double>(width), ceiling = cosine_ceiling(config_);
    const double cosine = mean_cosine(found_, targets_, width), retrieval = retrieval_at_1(found_, targets_, width);
    const double mapper_loss = mapper_loss_ / rows, mapper_cosine = mean_cosine(mapper_found_, targets_, width);
    const double mapper_retrieval = retrieval_at_1(mapper_found_, targets_, width), steps = steps_ / rows;
    const double coverage = static_cast<double>(covered_) / static_cast<double>(cells_);
    const std::int64_t created = counters_[counter::used], up = counters_[counter::arrived_up],
                       down = counters_[counter::arrived_down];
    Scored scored;
    scored.figures = {{"validation_cosine", cosine},    {"cosine_ceiling", ceiling},
                      {"retrieval_at_1", retrieval},    {"mapper_loss", mapper_loss},
                      {"mapper_cosine", mapper_cosine}, {"mapper_retrieval_at_1", mapper_retrieval},
                      {"flow_steps_used", steps},       {"cell_coverage", coverage}};
    const auto count = [&](const char* name, std::int64_t value) {
        scored.figures.push_back({name, static_cast<double>(value)});
    };
    count("flows_created", created);
    count("flows_spawned", counters_[counter::spawned]);
    count("flows_refused", counters_[counter::refused]);
    count("flows_arrived_up", up);
    count("flows_arrived_down", down);
    count("flows_projected", created - up - down);
    count("flows_reflected", counters_[counter::reflected]);
    scored.summary = fmt::format("cosine {:.3f} (ceiling {:.3f}) retrieval@1 {:.3f} of {}", cosine, ceiling, retrieval, rows);
    scored.notes.push_back(
        fmt::format("mapper alone: loss {:.4f} cosine {:.3f} retrieval@1 {:.3f}", mapper_loss, mapper_cosine, mapper_retrieval));
    scored.notes.push_back(fmt::format(
        "flows: {} created ({} spawned, {} refused), {} arrived above, {} below, {} projected, {} reflected; {:.1f} of {} "
        "steps; {:.1f} % of the cells covered",
        created, counters_[counter::spawned], counters_[counter::refused], up, down, created - up - down,
        counters_[counter::reflected], steps, config_.step_count(), 100 * coverage));
    return scored;
}

double word_overlap(std::string_view a, std::string_view b) {
    const auto left = words_of(a), right = words_of(b);
    int count = 0, common = 0;
    for (const auto& [word, times] : left) {
        count += times;
        if (const auto at = right.find(word); at != right.end()) common += std::min(times, at->second);
    }
    for (const auto& [word, times] : right) count += times;
    return count > 0 ? 2.0 * common / count : 1;
}

void TextScoring::add(const std::vector<std::vector<double>>& batch) {
    surface_.add(batch);
    const std::vector<double>& energies = batch[SurfaceScoring::energies];
    for (std::size_t i = 0; i < energies.size(); ++i) {
        const double error = batch[encoded][i] - energies[i];
        squares_ += error * error;
    }
    cells_ += static_cast<double>(energies.size());
    token_loss_ += batch[tally][ops::tally::loss];
    tokens_ += batch[tally][ops::tally::tokens];
    right_ += batch[tally][ops::tally::right];
    for (std::size_t row = 0; row < batch[target_lengths].size(); ++row) {
        const std::vector<std::int32_t> wanted = row_of(batch[targets], batch[target_lengths], row),
                                        answered = row_of(batch[answers], batch[answer_lengths], row);
        const std::string target = tokenizer_->decode(wanted), answer = tokenizer_->decode(answered);
        if (sentences_ == 0) {
            example_target_ = target;
            example_answer_ = answer;
        }
        overlap_ += word_overlap(answer, target);
        exact_ += answer == target ? 1 : 0;
        ++sentences_;
    }
}

Scored TextScoring::finish() const {
    Scored scored = surface_.finish();
    const double encode_loss = squares_ / cells_, token_loss = token_loss_ / std::max(tokens_, 1.0),
                 accuracy = right_ / std::max(tokens_, 1.0), overlap = overlap_ / static_cast<double>(sentences_),
                 exact = static_cast<double>(exact_) / static_cast<double>(sentences_);
    for (const Figure& figure :
         {Figure{"bridge_encode_loss", encode_loss}, Figure{"bridge_token_loss", token_loss},
          Figure{"bridge_token_accuracy", accuracy}, Figure{"bridge_word_overlap", overlap}, Figure{"bridge_exact", exact}})
        scored.figures.push_back(figure);
    scored.notes.push_back(fmt::format(
        "text bridge: encode loss {:.5f}, token loss {:.3f}, {:.1f} % of the tokens told right; answers share {:.1f} % "
        "of their words with the target, {:.1f} % are exact",
        encode_loss, token_loss, 100 * accuracy, 100 * overlap, 100 * exact));
    scored.notes.push_back(fmt::format("  the first: \"{}\" for \"{}\"", example_answer_, example_target_));
    return scored;
}

}  // namespace millrace::models
