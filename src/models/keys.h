#pragma once
// The recipe keys of a family, each with the member of its configuration that it sets: one list declares the keys, with the
// members' values as defaults, and reads them.
//
//     void cnn_keys(Keys& keys, CnnConfig& config) {
//         keys.add("hidden", config.hidden, "width of the hidden layer").between(1, 1 << 20);
//     }

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/recipe.h"

namespace millrace::models {

class Keys {
public:
    /// With a recipe, which has the keys below "model.", what is added is also read.
    explicit Keys(const base::Recipe* recipe = nullptr) : recipe_(recipe) {}

    template <class T>
    base::RecipeKey& add(const std::string& name, T& value, std::string_view help) {
        if constexpr (std::is_same_v<T, bool>) return read(schema_.boolean(name, value, help), value, &base::Recipe::boolean);
        // A float stands for the decimal number that it was written as.
        else if constexpr (std::is_floating_point_v<T>)
            return read(schema_.real(name, std::strtod(fmt::format("{}", value).c_str(), nullptr), help), value, first_real);
        else if constexpr (std::is_integral_v<T>)
            return read(schema_.integer(name, value, help), value, first_integer);
        else if constexpr (std::is_same_v<T, std::string>)
            return read(schema_.text(name, value, help), value, &base::Recipe::text);
        else if constexpr (std::is_same_v<T, std::vector<double>>)
            return read(schema_.reals(name, value, help), value, &base::Recipe::reals);
        else
            return read(schema_.integers(name, {value.begin(), value.end()}, help), value, whole_numbers<T>);
    }
    /// A number of which each member may have its own: one value, or as many as there are members.
    base::RecipeKey& add_per_member(const std::string& name, std::vector<double>& values, std::string_view help) {
        return read(schema_.real(name, values.front(), help).per_member(), values, &base::Recipe::reals);
    }
    /// A size in bytes that is 0 unless given.
    base::RecipeKey& add_bytes(const std::string& name, std::int64_t& value, std::string_view help) {
        return read(schema_.bytes(name, "0B", help), value, &base::Recipe::bytes);
    }
    template <class T>
    base::RecipeKey& add_choice(const std::string& name, T& value, const std::vector<std::pair<std::string, T>>& choices,
                                std::string_view help) {
        std::vector<std::string> names;
        for (const auto& choice : choices) names.push_back(choice.first);
        const auto initial = std::ranges::find(choices, value, &std::pair<std::string, T>::second);
        base::RecipeKey& key = schema_.choice(name, initial->first, std::move(names), help);
        if (recipe_ != nullptr)
            value = std::ranges::find(choices, recipe_->text("model." + name), &std::pair<std::string, T>::first)->second;
        return key;
    }
    [[nodiscard]] base::Schema& schema() { return schema_; }

private:
    static double first_real(const base::Recipe& recipe, const std::string& name) { return recipe.real(name); }
    static std::int64_t first_integer(const base::Recipe& recipe, const std::string& name) { return recipe.integer(name); }
    template <class T>
    static T whole_numbers(const base::Recipe& recipe, const std::string& name) {
        const std::vector<std::int64_t>& given = recipe.integers(name);
        return T(given.begin(), given.end());
    }
    template <class T, class Get>
    base::RecipeKey& read(base::RecipeKey& key, T& value, Get get) {
        if (recipe_ != nullptr) value = static_cast<T>(std::invoke(get, *recipe_, "model." + key.name));
        return key;
    }

    base::Schema schema_;
    const base::Recipe* recipe_;
};

/// The keys that a list declares with the values of `config` as defaults.
template <class Config>
base::Schema schema_of(void (*list)(Keys& keys, Config& config), Config config) {
    Keys keys;
    list(keys, config);
    return keys.schema();
}
/// What a recipe says about the keys of a list.
template <class Config>
Config read_keys(void (*list)(Keys& keys, Config& config), const base::Recipe& recipe) {
    Config config;
    Keys keys(&recipe);
    list(keys, config);
    return config;
}

}  // namespace millrace::models
