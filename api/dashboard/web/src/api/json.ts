// JSON as the text it is: shown and copied without ever becoming JavaScript's numbers, which round and lose zeros.
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;

export type Piece = { kind: 'key' | 'text' | 'number' | 'word' | 'mark'; text: string };

/** The members of an object by name, each as the text it was written as. */
export function rawMembers(text: string): Map<string, string> {
  const members = new Map<string, string>();
  let depth = 0;
  let name: string | null = null;
  let from = -1;
  for (const token of text.matchAll(TOKEN)) {
    const [word] = token;
    const at = token.index;
    if (depth === 1 && name === null && word.startsWith('"')) name = JSON.parse(word) as string;
    else if (depth === 1 && word === ':' && from < 0) from = at + 1;
    else if (depth === 1 && (word === ',' || word === '}') && name !== null) {
      members.set(name, text.slice(from, at).trim());
      name = null;
      from = -1;
    }
    if (word === '{' || word === '[') depth += 1;
    if (word === '}' || word === ']') depth -= 1;
  }
  return members;
}

/** The elements of an array, each as the text it was written as. */
export function rawElements(text: string): string[] {
  const elements: string[] = [];
  let depth = 0;
  let from = -1;
  for (const token of text.matchAll(TOKEN)) {
    const [word] = token;
    if (depth === 1 && from < 0 && word !== ']') from = token.index;
    if (word === '{' || word === '[') depth += 1;
    if (word === '}' || word === ']') depth -= 1;
    if (from >= 0 && ((depth === 1 && word === ',') || (depth === 0 && word === ']'))) {
      elements.push(text.slice(from, token.index).trim());
      from = -1;
    }
  }
  return elements;
}

/** Indented, every token as it was written. */
export function pretty(text: string): Piece[] {
  const pieces: Piece[] = [];
  const words = [...text.matchAll(TOKEN)].map(([word]) => word);
  let indent = 0;
  const line = () => `\n${'  '.repeat(indent)}`;
  words.forEach((word, place) => {
    const next = words[place + 1];
    if (word === '{' || word === '[') {
      const isEmpty = next === '}' || next === ']';
      indent += isEmpty ? 0 : 1;
      pieces.push({ kind: 'mark', text: isEmpty ? word : word + line() });
    } else if (word === '}' || word === ']') {
      const isEmpty = words[place - 1] === '{' || words[place - 1] === '[';
      indent -= isEmpty ? 0 : 1;
      pieces.push({ kind: 'mark', text: isEmpty ? word : line() + word });
    } else if (word === ',') pieces.push({ kind: 'mark', text: word + line() });
    else if (word === ':') pieces.push({ kind: 'mark', text: ': ' });
    else pieces.push({ kind: kindOf(word, next), text: word });
  });
  return pieces;
}

function kindOf(word: string, next: string | undefined): Piece['kind'] {
  if (word.startsWith('"')) return next === ':' ? 'key' : 'text';
  return /^[-\d]/.test(word) ? 'number' : 'word';
}
