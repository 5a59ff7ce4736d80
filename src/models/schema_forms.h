// Which keywords of a JSON schema llama.cpp's converter goes by.
//
// It decides by some keywords of what form a schema is, and passes over those
// that the form does not have.
//
// Pure.
#ifndef EVERWARM_MODELS_SCHEMA_FORMS_H_
#define EVERWARM_MODELS_SCHEMA_FORMS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace everwarm::models {

using SchemaJson = nlohmann::ordered_json;

// Types of JSON values, as a set: a bit for each.
using SchemaTypes = uint32_t;
inline constexpr SchemaTypes kEveryType = 127;
// None for what is no type's name.
SchemaTypes TypesNamed(const SchemaJson& name);
// A whole number is an integer, too.
SchemaTypes TypesOf(const SchemaJson& value);

// Of which types' values a keyword says something; of all where it is not
// known, of none if it only describes.
SchemaTypes ConcernsOf(std::string_view keyword);

struct SchemaForm {
  // Of which the values can be.
  SchemaTypes types = kEveryType;
  std::vector<std::string_view> followed;
  bool Follows(std::string_view keyword) const;
};
// Requires: an object. A "pattern" is one that can be followed.
SchemaForm FormOf(const SchemaJson& schema);

// Why the converter does not go by a keyword of this schema; the end of a
// sentence.
std::string WhyNotFollowed(const SchemaJson& schema, std::string_view keyword);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_SCHEMA_FORMS_H_
