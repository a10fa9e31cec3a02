# A stand-in for Vagrant: evaluates a Vagrantfile for one provider and prints every call as JSON.
# usage: ruby vagrant_recorder.rb VAGRANTFILE PROVIDER
require "json"

class Recorder < BasicObject
  def initialize(name, provider, calls)
    @name, @provider, @calls = name, provider, calls
  end

  def provider(name, &block)
    return if name != @provider
    block.call(::Recorder.new(name, @provider, @calls), ::Recorder.new("config", @provider, @calls))
  end

  def provision(kind, &block)
    block.call(::Recorder.new(kind, @provider, @calls))
  end

  def method_missing(name, *arguments)
    return ::Recorder.new("#{@name}.#{name}", @provider, @calls) if arguments.empty?
    @calls << ["#{@name}.#{name}", *arguments]
  end
end

module Vagrant
  CALLS = []

  def self.configure(_version)
    yield Recorder.new("config", ARGV[1], CALLS)
  end
end

load ARGV[0]
puts JSON.generate(Vagrant::CALLS)
