#include "data/pairs/resident_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

static_assert(kPairLineCap <= Tokenizer::kLongestText, "every sentence of a pair is trained on");

TokenTable tabulate(const std::vector<std::vector<std::int32_t>>& sentences, std::int32_t most, std::int32_t width) {
    TokenTable table;
    table.tokens = width;
    if (width == 0) {
        std::size_t longest = 1;
        for (const auto& sentence : sentences) longest = std::max(longest, sentence.size());
        table.tokens = static_cast<std::int32_t>(std::min(longest, static_cast<std::size_t>(most)));
    }
    const auto columns = static_cast<std::size_t>(table.tokens);
    table.ids.assign(sentences.size() * columns, 0);
    for (std::size_t i = 0; i < sentences.size(); ++i) {
        const std::size_t length = std::min(sentences[i].size(), columns);
        table.cut += sentences[i].size() > columns ? 1 : 0;
        std::copy_n(sentences[i].begin(), length, table.ids.begin() + static_cast<std::ptrdiff_t>(i * columns));
        table.lengths.push_back(static_cast<std::int32_t>(length));
    }
    return table;
}

}  // namespace

std::vector<std::string> training_texts(const PairSet& set) {
    std::vector<std::string> texts;
    for (const std::int32_t row : set.part(Part::train)) {
        const TextPair& pair = set.texts[static_cast<std::size_t>(row)];
        texts.insert(texts.end(), {pair.input, pair.target});
    }
    return texts;
}

PairTokens tokenize(const PairSet& set, const Tokenizer& tokenizer, std::int32_t most, const StoredData& stored) {
    std::vector<std::vector<std::int32_t>> inputs, targets;
    inputs.reserve(set.texts.size());
    targets.reserve(set.texts.size());
    for (const TextPair& pair : set.texts) {
        inputs.push_back(tokenizer.encode(pair.input));
        targets.push_back(tokenizer.encode(pair.target));
        targets.back().push_back(Tokenizer::kEnd);
    }
    const auto width = [&](const char* field) {
        const auto at = stored.widths.find(field);
        return at == stored.widths.end() ? 0 : at->second;
    };
    return {tabulate(inputs, most, width("input_tokens")), tabulate(targets, most, width("target_tokens"))};
}

PairSource::PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens, const std::shared_ptr<const Tokenizer>& tokenizer)
    : set_(std::move(set)), tokens_(std::move(tokens)) {
    order_ = set_->parts;
    fields_ = {{"vector", Field::Kind::real, dimensions()}, {"goal", Field::Kind::real, dimensions()}};
    constexpr const char* kSides[] = {"input", "target"};
    for (std::size_t side = 0; side < tokens_.size() && tokens_[side].tokens > 0; ++side) {
        fields_.push_back({fmt::format("{}_tokens", kSides[side]), Field::Kind::integer, tokens_[side].tokens,
                           tokenizer ? tokenizer->vocabulary() : 0, tokenizer});
        fields_.push_back({fmt::format("{}_length", kSides[side]), Field::Kind::integer, 1, tokens_[side].tokens + 1});
    }
}

std::vector<std::string> PairSource::texts_at(Part part, std::int32_t position) const {
    MILLRACE_ASSERT(position >= 0 && position < samples(part), "no such position in this part");
    const std::int32_t pair = order_[index_of(part)][static_cast<std::size_t>(position)];
    const TextPair& texts = set_->texts[static_cast<std::size_t>(pair)];
    return {texts.input, texts.target};
}

base::Status PairSource::declare_tables(tape::Store& store) {
    if (set_->count == 0) return base::Error{"the set has no pairs"};
    if (samples(Part::train) == 0)
        return base::Error{"all pairs are held out for validation; a smaller data.validation would be right"};
    const auto count = static_cast<std::int32_t>(set_->count);
    tables_.clear();
    for (const auto* vectors : {&set_->inputs, &set_->targets}) {
        const tensor::View table =
            store.add_data(fields_[tables_.size()].name, tape::stat_of(store.options().precision), count, dimensions());
        on_upload([table, vectors](tape::Store& to) { to.write_stat(table, *vectors); });
        tables_.push_back(table);
    }
    for (std::size_t i = 2; i < fields_.size(); ++i) {
        const TokenTable& tokens = tokens_[(i - 2) / 2];
        tables_.push_back(add_table(store, fields_[i].name, tensor::DType::i32, count, fields_[i].width,
                                    i % 2 == 0 ? tokens.ids : tokens.lengths));
    }
    for (const Part part : {Part::train, Part::validation}) subset_[index_of(part)] = add_order(store, part);
    return base::ok();
}

std::vector<tensor::View> PairSource::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                             std::span<const Wanted> fields) {
    MILLRACE_ASSERT(samples(part) > 0, fmt::format("the {} part has no pairs to gather", name_of(part)));
    ops::GatherRowsParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.training = params.shuffle = builder.training();
    std::vector<tensor::View> views;
    for (const Wanted& wanted : fields) {
        const std::size_t field = field_index(fields_, wanted.field);
        views.push_back(places_of(builder, {fields_[field]}, rows, std::span(&wanted, 1)).wanted.front());
        builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data",
                                       {tables_[field], subset_[index_of(part)], builder.store().state(), views.back()}));
    }
    return views;
}

}  // namespace millrace::data
