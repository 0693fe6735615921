#include "models/energy_flow/text_scoring.h"
#include "ops/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace millrace::models {
namespace {

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
